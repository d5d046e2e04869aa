"""The sum of everybody's numbers and nothing else (Bonawitz 2017, Bell 2020).

Pure functions: no Flower, no statistics, no input or output. The server learns the sum
of arrays of integers modulo 2^(64 L), and of a single client nothing.

========== =============================== ===========================================
exchange   the server sends                a client answers
========== =============================== ===========================================
1 keys     a session                       two public keys, signed if it has a key
2 shares   terms, keys of its neighbours   for each neighbour a box: a share of its mask
                                           key and one of its seed
3 masked   who sent boxes, those for it    its numbers + own mask + signed pair masks
4 confirm  who delivered                   for each neighbour what confirms both lists
5 unmask   confirmations of neighbours     for each neighbour ONE share: of the seed if
                                           it delivered, of the mask key if not
========== =============================== ===========================================

All clients agree, by the keys that they derive, on the terms and on the public keys of
everybody. Who delivered is a list of all clients. A client reveals shares only if more
than two thirds of its neighbours, which is the threshold, confirm to it the lists that
it was told. So there is one list for all, and one sum.

The primitives are those of `cryptography`: X25519, HKDF-SHA256, AES-256-CTR for masks,
AES-256-GCM for boxes, Ed25519. Shares are those of `pycryptodome`'s Shamir.
"""

from .terms import SecurePolicy, SecureSum, Terms

__all__ = ["SecurePolicy", "SecureSum", "Terms"]
