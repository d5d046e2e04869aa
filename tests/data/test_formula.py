"""Formulas: what may be in them, and that nothing else is ever evaluated."""

from __future__ import annotations

from typing import Any

import pytest

from fedridge_flwr import FedRidgeError, TableFormula


@pytest.mark.parametrize(
    ("text", "targets", "columns", "categories", "intercept"),
    [
        ("y ~ a + C(b)", ("y",), ("a", "b"), ("b",), True),
        ("y1 + y2 ~ 0 + a", ("y1", "y2"), ("a",), (), False),
        ("log(y) ~ a*b - 1", ("y",), ("a", "b"), (), False),
        ("y ~ I(a**2 + 3*b) + sqrt(c)", ("y",), ("a", "b", "c"), (), True),
        ("y ~ C(b, Treatment('2')):a", ("y",), ("b", "a"), ("b",), True),
        ("y ~ C(b, Treatment(reference='2'))", ("y",), ("b",), ("b",), True),
        ("`my y` ~ `a b` + C(`c-d`)", ("my y",), ("a b", "c-d"), ("c-d",), True),
        ("y ~ (a + b)**2", ("y",), ("a", "b"), (), True),
        ("y ~ I((a - 50) / 10)", ("y",), ("a",), (), True),
        ("y ~ I(((a*(b+c))**2*(a*b*c*a*b*c*a*b))**8)", ("y",), tuple("abc"), (), True),
    ],
)
def test_columns_of_a_formula(text, targets, columns, categories, intercept) -> None:
    formula = TableFormula(text)
    assert formula.targets == targets
    assert formula.columns == columns
    assert formula.categories == categories
    assert formula.intercept is intercept


ATTACKS = [
    "y ~ __import__('os').system('touch /tmp/attacked')",
    "y ~ I(__import__('os').system('touch /tmp/attacked'))",
    "y ~ {__import__('os')}",
    "y ~ I(a.__class__)",
    "y ~ I((lambda: a)())",
    "y ~ I([a for a in b])",
    "y ~ I(a if b else c)",
    "y ~ I(open('/etc/passwd'))",
    "y ~ I(exec('1'))",
    "y ~ C(a, levels=[1])",
    "y ~ C(a, contr.treatment(exec('1')))",
    "y ~ C(a, Treatment(exec('1')))",
    "y ~ C(I(a))",
    "y ~ np.log(a)",
    "y ~ log(a, b)",
    "y ~ log(a)(b)",
    "y ~ I(a @ b)",
    "y ~ I(a, b)",
    "y ~ I(a := 3)",
    "y ~ I(f'{a}')",
    "y ~ I('a' * 10)",
    "y ~ I(a[0])",
    "y ~ I(*a)",
    "exec('1') ~ a",
    "y ~ Q('a')",
    "y ~ bs(a, df=4)",
    "y ~ lag(a)",
    # What is a quoted name to one reader, and strings and code to another.
    """y ~ C(a, Treatment("`" + str(exec('1')) + "`"))""",
    """y ~ C(a, Treatment('`' + exec("1") + '`'))""",
    # formulaic writes the text of C() into code of its own.
    """y ~ C(a, Treatment("+a)#'"))""",
    """y ~ C(a, Treatment('"'))""",
    """y ~ C(a, Treatment('\\\\'))""",
]


@pytest.mark.parametrize(
    "text",
    [
        "y ~ `1` + a",
        "y ~ `0`",
        "y ~ `log(a)` + log( a )",
        "y ~ 2:a",
        "y ~ C(b) + `C(b)`",
    ],
)
def test_columns_that_would_be_dropped_as_another_term_are_refused(text: str) -> None:
    with pytest.raises(FedRidgeError, match=r"mistaken for another|multiple in I"):
        TableFormula(text)


def test_a_column_of_the_name_1_is_refused_where_all_are_taken() -> None:
    with pytest.raises(FedRidgeError, match="'1' would be mistaken for another term"):
        TableFormula("y ~ .").used_columns(["y", "1", "2"])
    assert TableFormula("y ~ .").used_columns(["y", "2"]) == ("2",)


@pytest.mark.parametrize("text", ATTACKS)
def test_nothing_is_evaluated_that_is_not_arithmetic(text: str) -> None:
    with pytest.raises(FedRidgeError, match="formula"):
        TableFormula(text)


@pytest.mark.parametrize("name", ["scale", "center", "poly", "bs", "ns", "cs"])
def test_functions_of_a_sites_own_rows_are_refused_with_the_remedy(name: str) -> None:
    with pytest.raises(FedRidgeError, match=f"{name}.*each site's own.*standardize"):
        TableFormula(f"y ~ {name}(a)")


@pytest.mark.parametrize(
    "text",
    [
        "y ~ I(9**9**9 + a)",
        "y ~ I((9**9)**9 * a)",
        "y ~ I(a**99)",
        "y ~ I(a**b)",
        "y ~ (a+b+c+d+e+f+g)**20",
        "y ~ a*b*c*d*e*f*g*h*i*j*k*l*m*n*o*p*q*r*s*t",
        "y ~ ((a+b)**3)**3",
        "y ~ a^9",
        f"y ~ {'+'.join(f'x{k}' for k in range(4000))}",
        "y ~ I(" + "(" * 5000 + "a" + ")" * 5000 + ")",
    ],
)
def test_what_would_take_forever_is_refused_at_once(text: str) -> None:
    with pytest.raises(FedRidgeError, match="formula"):
        TableFormula(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("~ a", "target ~ features"),
        ("y", "target ~ features"),
        ("y ~ a | b", r"write C\(b\) for fixed effects"),
        ("y ~ a + (1|b)", r"write C\(b\).*random_site_effects"),
        ("y ~ a + (b", r"a bracket \( is not closed"),
        ("y ~ log(a", r"a bracket \( is not closed"),
        ("y ~ a + b)", r"a bracket \) is not opened"),
        ("y ~ a + `b", "a quote ` is not closed"),
        ("y ~ a +", r"something is missing after \+"),
        ("y ~ (a + b *) + c", r"something is missing beside \*"),
        ("y ~ a:", "something is missing after :"),
        ("y ~ relevel(a, ref = 'm')", r'write C\(a, Treatment\("m"\)\)'),
        ('y ~ relevel(C(a), "m")', r'write C\(a, Treatment\("m"\)\)'),
        ("y ~ relevel(a)", r"Treatment\(.*for relevel"),
        ('y ~ C(a, ref="m")', r'write C\(a, Treatment\("m"\)\)'),
        ("y ~ C(`a b`, base=4)", r'write C\(`a b`, Treatment\("4"\)\)'),
        ("y ~ a + offset(log(years))", "weights, log of the exposure"),
        ("y ~ poly(a, 3)", r"Write a \+ I\(a\*\*2\) \+ I\(a\*\*3\)"),
        ("y ~ cut(a, 3)", "make such a column in every table"),
        ("y ~ Q('a b')", "in backquotes"),
        ("y ~ 1", "no features"),
        ("y ~ y", "both sides"),
        ("y ~ C(a) + a", "category"),
        ("y ~ C(a) + log(a)", "category"),
        ("C(y) ~ a", "target must be"),
        ("a:b ~ c", "target must be"),
        ("y ~ I(a^2)", r"\*\*"),
        ("y ~ I(1)", "without any column"),
        ("y = a", "write ~ between"),
        ("y ~ a b", "operator"),
        ("", "text of at most"),
    ],
)
def test_errors_say_what_is_wrong(text: str, reason: str) -> None:
    with pytest.raises(FedRidgeError, match=reason):
        TableFormula(text)


def test_a_point_takes_all_other_columns() -> None:
    formula = TableFormula("y ~ . - a + log(a)", weights="w")
    assert formula.takes_all
    assert formula.used_columns(["w", "y", "a", "b c", "d"]) == ("b c", "d", "a")
    assert not TableFormula("y ~ a.b").takes_all


def test_target_and_features_are_a_formula() -> None:
    assert TableFormula.of("y", ["a", "b c"]).columns == ("a", "b c")
    assert TableFormula.of(["y", "z"]).takes_all
    with pytest.raises(FedRidgeError, match="must not contain `"):
        TableFormula.of("y", ["a`) + exec(`b"])


def test_a_formula_travels() -> None:
    formula = TableFormula(
        "y ~ C(a) + b",
        categorical=["b"],
        levels={"a": ["1"]},
        missing="mean",
        weights="w",
    )
    assert TableFormula.from_content(formula.content()) == formula


@pytest.mark.parametrize(
    "content",
    [
        None,
        [],
        {},
        {"formula": 3},
        {"formula": "y ~ a", "levels": []},
        {"formula": "y ~ a", "levels": {"a": "1"}},
        {"formula": "y ~ a", "categorical": "a"},
        {"formula": "y ~ a", "missing": "guess"},
        {"formula": "y ~ a", "weights": 3},
        {"formula": "y ~ I(exec('1'))"},
    ],
)
def test_a_formula_from_elsewhere_is_not_trusted(content: object) -> None:
    with pytest.raises(FedRidgeError):
        TableFormula.from_content(content)


def test_the_column_of_weights_is_nothing_else() -> None:
    for text in ("y ~ a + w", "w ~ a", "y ~ C(w)"):
        with pytest.raises(FedRidgeError, match="column of weights"):
            TableFormula(text, weights="w")


def test_a_formula_says_whether_it_computes_anything() -> None:
    assert not TableFormula("y ~ a*C(b)").computes
    for text in ("y ~ log(a)", "y ~ I(a**2)", "log(y) ~ a", "y ~ {a + 1}"):
        assert TableFormula(text).computes


def names(letter: str, n: int = 150) -> str:
    return "+".join(f"{letter}{k}" for k in range(n))


@pytest.mark.parametrize(
    "text",
    [
        f"y ~ ({names('a')})**3",
        f"y ~ ({names('a')})*({names('b')})*({names('c')})",
        f"y ~ ({names('a')}):({names('b')}):({names('c')})",
        "y ~ " + ":".join(f"(a{k} + b{k})" for k in range(25)),
        f"({names('a')})**3 ~ x",
    ],
)
def test_few_products_of_many_terms_are_not_written_down(text: str) -> None:
    with pytest.raises(FedRidgeError, match="at most 2000 terms"):
        TableFormula(text)


def test_products_of_all_columns_are_not_written_down_if_there_are_many() -> None:
    for text in ("y ~ .**3", "y ~ .:.:."):
        formula = TableFormula(text)
        assert formula.used_columns(["y", "a", "b"]) == ("a", "b")
        with pytest.raises(FedRidgeError, match="at most 2000 terms"):
            formula.used_columns([f"c{k}" for k in range(300)])


def test_terms_have_the_columns_of_their_factors() -> None:
    formula = TableFormula("y ~ a*C(b) + log(c):a")
    assert formula.terms(()) == ((), ("a",), ("b",), ("a", "b"), ("", "a"))


@pytest.mark.parametrize("text", ["y ~ log + log(a)", "I ~ I(a**2)", "y ~ C(C) + a"])
def test_a_column_that_is_called_like_a_function_in_use_is_refused(text: str) -> None:
    with pytest.raises(FedRidgeError, match="is a column and a function"):
        TableFormula(text)
    assert TableFormula("y ~ log + C(b)").columns == ("log", "b")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("bp ~ age + as.factor(cp)", r"as\.factor\(\) is C\(\) here: write C\(cp\)"),
        ("bp ~ factor( `a b` )", r"factor\(\) is C\(\) here: write C\(`a b`\)"),
        ("bp = age + sex", 'write ~ between the target .* as in "bp ~ age"'),
        ("bp ~ age = sex", "write ~ between the target"),
        ("bp ~ age + (dose==1)", "Comparisons are not supported"),
        ("I(num > 0) ~ age", "Comparisons are not supported: make a column of 0 and 1"),
        ("bp ~ I(num >= 1)", "Comparisons are not supported"),
    ],
)
def test_what_people_know_from_r_has_its_remedy(text: str, reason: str) -> None:
    with pytest.raises(FedRidgeError, match=reason):
        TableFormula(text)


def test_columns_may_be_called_like_functions_of_r() -> None:
    formula = TableFormula("bp ~ `my factor(x)` + factor + C(ward, Treatment('a(b)'))")
    assert formula.columns == ("my factor(x)", "factor", "ward")


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ('y ~ C(a, Treatment("x|y")) + b', ("a", "b")),
        ("y ~ `a|b` + `cut(c)`", ("a|b", "cut(c)")),
        ("y ~ offset + poly + cut", ("offset", "poly", "cut")),
        ("y ~ `dose C(x, 2)`", ("dose C(x, 2)",)),
    ],
)
def test_what_is_only_spelled_alike_is_not_refused(
    text: str, columns: tuple[str, ...]
) -> None:
    assert TableFormula(text).columns == columns


@pytest.mark.parametrize("more", [{"levels": {"trige": ["1"]}}, {"categorical": ["Y"]}])
def test_levels_and_categories_are_of_features(more: dict[str, Any]) -> None:
    with pytest.raises(FedRidgeError, match="is not among the features"):
        TableFormula("y ~ triage", **more)
    TableFormula("y ~ .", **more)  # which columns there are is not known yet


@pytest.mark.parametrize("text", ["y ~ x %in% g", "y ~ a + x%in%C(g)"])
def test_within_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(FedRidgeError, match="write x:g"):
        TableFormula(text)
    assert TableFormula("y ~ `x %in% g`").columns == ("x %in% g",)
