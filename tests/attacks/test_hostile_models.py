"""Models are data: layers that do not fit are refused when they come in, and never evaluated."""

import re

import numpy as np
import psycopg
import pytest
from psycopg import RawCursor

from pg_hashindex import store
from pg_hashindex.models.layers import Layer, affine, affinity, normalize, rbf, shift
from pg_hashindex.models.model import Model

# Layers as SQL writes them: kind, weights, bias, scale, nearest. Two numbers go in.
EYE = "ARRAY['[1,0]','[0,1]']::vector[]"
WELL = {
    "affine": f"('affine', {EYE}, '[0,0]', NULL, NULL)",
    "shift": "('shift', NULL, '[1,2]', NULL, NULL)",
    "rbf": f"('rbf', {EYE}, NULL, 0.5, NULL)",
    "affinity": f"('affinity', {EYE}, NULL, 0.5, 1)",
    "relu": "('relu', NULL, NULL, NULL, NULL)",
    "network": "('network', NULL, NULL, NULL, NULL)",
}
WIDE = "(SELECT array_agg('[0,0]'::vector) FROM generate_series(1, 16001))"

# The fault, its message, and whether evaluating the layer alone shows it.
MALFORMED = {
    "kind of none": ("('pickle', NULL, NULL, NULL, NULL)", "unknown layer kind 'pickle'"),
    "kind NULL": (f"(NULL, {EYE}, '[0,0]', NULL, NULL)", "unknown layer kind NULL"),
    "layer NULL": ("(NULL, NULL, NULL, NULL, NULL)", "unknown layer kind NULL"),
    "no weights": (
        "('affine', NULL, '[0,0]', NULL, NULL)",
        "one of kind affine carries weights, bias, and it has bias",
    ),
    "no bias": (
        f"('affine', {EYE}, NULL, NULL, NULL)",
        "carries weights, bias, and it has weights",
    ),
    "shift of nothing": ("('shift', NULL, NULL, NULL, NULL)", "carries bias, and it has nothing"),
    "no scale": (f"('rbf', {EYE}, NULL, NULL, NULL)", "carries weights, scale, and it has weights"),
    "scale 0": (f"('rbf', {EYE}, NULL, 0, NULL)", "its scale is 0, and must be finite and above"),
    "scale below 0": (f"('rbf', {EYE}, NULL, -1, NULL)", "its scale is -1"),
    "scale NaN": (f"('rbf', {EYE}, NULL, 'NaN', NULL)", "its scale is NaN"),
    "scale infinite": (f"('affinity', {EYE}, NULL, 'inf', 1)", "its scale is Infinity"),
    "nearest 0": (f"('affinity', {EYE}, NULL, 1, 0)", "its nearest is 0, and must be 1 to the num"),
    "nearest 3": (f"('affinity', {EYE}, NULL, 1, 3)", "1 to the number of anchors, 2"),
    "nearest NULL": (f"('affinity', {EYE}, NULL, 1, NULL)", "carries weights, scale, nearest"),
}
# The check of a stored model refuses these; evaluated alone, some give right answers.
UNFIT = {
    "too much": (
        f"('relu', {EYE}, NULL, NULL, NULL)",
        "of kind relu carries nothing, and it has w",
    ),
    "nearest of an rbf": (
        f"('rbf', {EYE}, NULL, 1, 1)",
        "carries weights, scale, and it has weigh",
    ),
    "rows of three": (
        "('affine', ARRAY['[1,0]','[0,1,2]']::vector[], '[0,0]', NULL, NULL)",
        "row 2 of its weights has 3 dimensions, but its input has 2",
    ),
    "a row of NULL": (
        "('affine', ARRAY['[1,0]',NULL]::vector[], '[0,0]', NULL, NULL)",
        "row 2 of its weights has NULL dimensions",
    ),
    "no rows": ("('affine', '{}'::vector[], '[0,0]', NULL, NULL)", "are an array {} of vectors"),
    "a table of rows": (
        "('affine', ARRAY[['[1,0]','[0,1]']]::vector[], '[0,0]', NULL, NULL)",
        r"are an array \[1:1\]\[1:2\] of vectors",
    ),
    "rows from 0": (
        """('affine', '[0:1]={"[1,0]","[0,1]"}'::vector[], '[0,0]', NULL, NULL)""",
        r"are an array \[0:1\] of vectors",
    ),
    "too many rows": (f"('rbf', {WIDE}, NULL, 1, NULL)", r"\[1:16001\] of vectors"),
    "bias of three": (
        f"('affine', {EYE}, '[0,0,0]', NULL, NULL)",
        "its bias has 3 dimensions, and must have 2",
    ),
    "shift of three": ("('shift', NULL, '[1,2,3]', NULL, NULL)", "its bias has 3 dimensions"),
}


def insert(
    connection, layers, *, dimension=2, n_bits=2, network="NULL", cuts="{0}", bit_weights="NULL"
):
    connection.execute(
        f"""
        INSERT INTO hashindex.model (name, version, method, dimension, n_bits, metric, parameters,
                                     training, layers, checksum, network, cuts, bit_weights)
        VALUES ('m', 1, 'x', {dimension}, {n_bits}, 'l2', '{{}}', '{{}}', {layers}, '', {network},
                '{cuts}', {bit_weights})
        """.encode()
    )


def listed(*layers):
    return f"ARRAY[{', '.join(f'ROW{layer}::hashindex.layer' for layer in layers)}]"


@pytest.mark.newest
@pytest.mark.parametrize("before", [(), ("relu",), ("affine", "rbf")], ids=len)
def test_malformed_layers_are_refused(connection, before):
    for layer, message in (MALFORMED | UNFIT).values():
        layers = listed(*(WELL[kind] for kind in before), layer)
        with pytest.raises(psycopg.errors.CheckViolation) as caught:
            insert(connection, layers)
        text = str(caught.value)
        assert text.startswith(f'layer {len(before) + 1} of model "m" is malformed: ')
        assert re.search(message, text), text
    assert connection.execute("SELECT count(*) FROM hashindex.model").fetchone() == (0,)


FOREIGN = [
    (listed(WELL["affine"]), {"n_bits": 3}, "gives 2 projections with 1 cuts, .* have 3"),
    (
        listed(WELL["affine"]),
        {"dimension": 3},
        "row 1 .* has 2 dimensions, but its input has 3",
    ),
    (listed(WELL["relu"]), {"dimension": 4}, "gives 4 projections with 1 cuts, .* have 2"),
    (listed(WELL["affine"]), {"cuts": "{0,1}"}, "gives 2 projections with 2 cuts, .* have 2"),
    (
        listed(WELL["affine"]),
        {"cuts": "{0,1}", "n_bits": 4, "bit_weights": "'[1,1,1,1]'"},
        "and weights of bits or a network",
    ),
    (
        listed(WELL["network"]),
        {"cuts": "{0,1}", "n_bits": 4, "network": """'{"kind": "rows", "n_bits": 2}'"""},
        "and weights of bits or a network",
    ),
    (
        listed(WELL["network"]),
        {"n_bits": 4, "network": """'{"kind": "torch", "n_bits": 2}'"""},
        "gives 2 projections with 1 cuts, .* have 4",
    ),
    (listed(WELL["network"], WELL["relu"]), {}, "stands for a network, and is not the last"),
    (listed(WELL["network"]), {}, "model_network_check"),
    (listed(WELL["relu"]), {"network": """'{"kind": "torch"}'"""}, "model_network_check"),
    (
        listed(WELL["relu"], WELL["network"]),
        {"network": """'{"kind": "rows"}'"""},
        "takes rows as they are in the table, and 1 layers stand before it",
    ),
    ("'{}'::hashindex.layer[]", {}, "are an array {} of layers"),
    (f"ARRAY[{listed(WELL['relu'])}]", {}, r"are an array \[1:1\]\[1:1\] of layers"),
    (
        f"array_fill(ROW{WELL['relu']}::hashindex.layer, ARRAY[1000000])",
        {},
        r"\[1:1000000\] of layers",
    ),
    (f"array_fill(ROW{WELL['relu']}::hashindex.layer, ARRAY[65])", {}, r"\[1:65\] of layers"),
    (
        f"array_fill(ROW{WELL['relu']}::hashindex.layer, ARRAY[1], ARRAY[0])",
        {},
        r"are an array \[0:0\] of layers",
    ),
]


def test_models_that_do_not_fit_are_refused(connection):
    for layers, changes, message in FOREIGN:
        with pytest.raises(psycopg.errors.CheckViolation, match=message):
            insert(connection, layers, **changes)


def test_every_kind_of_layer_may_be_stored(connection, known_model):
    rng = np.random.default_rng(1)
    anchors = rng.standard_normal((300, 256))
    layers = [
        normalize(),
        shift(rng.standard_normal(256)),
        rbf(anchors, 0.5),
        affine(rng.standard_normal((384, 300))),
        affinity(rng.standard_normal((20, 384)), 0.5, 3),
        *(Layer(kind) for kind in ("relu", "tanh", "sin", "cos")),  # type: ignore[arg-type]
    ]
    for model in (
        Model("all", "byhand", 256, layers),
        Model("longest", "byhand", 1, [Layer("relu")] * 64),
        Model("one", "byhand", 16_000, [affine(np.ones((1, 16_000)))]),
        known_model,
    ):
        saved = store.save(connection, model)
        assert store.load(connection, model.name).checksum == saved.checksum


COPIED = """
    COPY hashindex.model (name, version, method, dimension, n_bits, metric, parameters, training,
                          layers, checksum)
"""


def copied(connection):
    with connection.cursor().copy(COPIED + "TO STDOUT") as copy:
        return b"".join(map(bytes, copy))


def test_a_restore_of_data_alone_is_checked_too(connection):
    """And passes, for what was saved; pg_dump of all restores rows before it makes triggers."""
    store.save(connection, Model("m", "byhand", 2, [rbf(np.eye(2), 0.5), affine(np.eye(2))]))
    data = copied(connection)
    for old, new, refused in (
        (b"rbf", b"rbf", False),
        (b"rbf", b"exec", True),
        (b",0.5,", b",-0.5,", True),
    ):
        assert old in data
        connection.execute("DELETE FROM hashindex.model")
        with connection.cursor() as cursor:
            copying = cursor.copy(COPIED + "FROM STDIN")
            if refused:
                with pytest.raises(psycopg.errors.CheckViolation, match="layer 1 .* is malformed"):
                    with copying as copy:
                        copy.write(data.replace(old, new))
            else:
                with copying as copy:
                    copy.write(data)


def evaluated(connection, layers, vector="[1,2]"):
    row = (
        RawCursor(connection)
        .execute(f"SELECT hashindex.project_with({layers}, '{vector}')::text")
        .fetchone()
    )
    return row[0]


@pytest.mark.parametrize("function", ["project_with", "encode_with"])
def test_malformed_layers_are_not_evaluated(connection, function):
    """Passed to the functions directly, where no row is checked: never NULL, never nonsense."""
    for layer, message in MALFORMED.values():
        for layers in (listed(layer), listed(WELL["relu"], layer), listed(layer, WELL["relu"])):
            with pytest.raises(psycopg.errors.InvalidParameterValue) as caught:
                connection.execute(f"SELECT hashindex.{function}({layers}, '[1,2]')".encode())
            assert "a layer is malformed: " in str(caught.value)
            assert re.search(message, str(caught.value))


def test_layers_that_do_not_fit_are_errors_or_right(connection):
    # Values beyond the limit are not read.
    right = dict.fromkeys(("too much", "a table of rows", "rows from 0"), "[1,2]")
    right["nearest of an rbf"] = str(evaluated(connection, listed(WELL["rbf"].replace("0.5", "1"))))
    for what, (layer, _) in UNFIT.items():
        if what in right:
            assert evaluated(connection, listed(layer)) == right[what]
            continue
        with pytest.raises(psycopg.Error) as caught:
            evaluated(connection, listed(layer))
        assert (caught.value.sqlstate or "")[:2] in {"22", "54"}, what


def test_numbers_of_layers(connection):
    for number, said in ((0, "no"), (65, "65"), (1_000_000, "1000000")):
        layers = f"array_fill(ROW{WELL['relu']}::hashindex.layer, ARRAY[{number}])"
        with pytest.raises(psycopg.errors.InvalidParameterValue, match=f"there are {said} layers"):
            connection.execute(f"SELECT hashindex.encode_with({layers}, '[1,2]')".encode())
