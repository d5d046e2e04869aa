"""Cases of memory: reading never takes more than a small multiple of what arrived."""

from __future__ import annotations

import tracemalloc

from fuzz_attacks import SENT
from fuzz_drafts import HONEST, Rng
from fuzz_replies import arrived, read
from fuzz_run import REFUSED, UNSENT, Case, Trial, WrongAcceptError

from fedridge_flwr import FedRidgeError

MULTIPLE, BESIDE = 40, 4 << 20
ATTACKS = (
    "header: huge shape",
    "header: odd shape",
    "few columns that claim to be many",
    "names: deep JSON, megabytes",
    "arrays missing, doubled, swapped, retyped",
)


def _within(name: str) -> Trial:
    def trial(rng: Rng) -> str | None:
        draft = HONEST[str(rng.choice(list(HONEST)[:10]))](rng)
        SENT[name](rng, draft)
        content = arrived(draft.records())
        if content is None:
            return UNSENT
        size = sum(len(data) for _, data in draft.arrays) + len(str(draft.fields))
        outcome = None
        tracemalloc.start()
        try:
            read(draft, content)
        except FedRidgeError:
            outcome = REFUSED
        finally:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        if peak > MULTIPLE * size + BESIDE:
            raise WrongAcceptError(f"{peak} bytes of memory for {size} that arrived")
        return outcome

    return trial


def memory_cases() -> list[Case]:
    return [Case("memory", name, _within(name), share=0.3) for name in ATTACKS]
