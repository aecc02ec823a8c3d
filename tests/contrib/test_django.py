"""Django: migrations that its own autodetector writes, and searches beside brute force."""

import asyncio
import importlib
import operator
import pickle
import re
import shutil
import sys
import uuid

import django
import numpy as np
import psycopg
import pytest
from asgiref.sync import sync_to_async
from django.conf import settings
from django.core import checks
from django.core.management import call_command
from django.db import DataError, connections, models
from django.db.migrations.loader import MigrationLoader
from django.test.utils import isolate_apps, override_settings
from pgvector import HalfVector, Vector
from pgvector.django import VectorField

from pg_hashindex import HashIndex as Handle
from pg_hashindex import store
from pg_hashindex.db.connection import connect
from pg_hashindex.errors import InUseError, InvalidInputError, UnknownIndexError
from pg_hashindex.hashers import LSH

pytestmark = pytest.mark.newest

if not settings.configured:
    settings.configure(
        INSTALLED_APPS=["fixtures.shop"],
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        DATABASES={
            "default": {"ENGINE": "django.db.backends.postgresql"},
            "lite": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
        },
        USE_TZ=True,
    )
    django.setup()

from fixtures.filters import drop_filtered_search, look_codes_up  # noqa: E402
from fixtures.shop.models import Item, Maker  # noqa: E402

from pg_hashindex.contrib.django import (  # noqa: E402
    HashIndex,
    InstallHashindex,
    NearestQuerySet,
    indexes,
)

ROWS = 300


class Project:
    """A project whose migrations are in an empty folder."""

    def __init__(self, folder, url):
        self.folder = folder
        self.use(url)

    def use(self, url):
        parts = psycopg.conninfo.conninfo_to_dict(url)
        connections["default"].close()
        for name in ("dbname", "user", "host", "port"):
            key = "NAME" if name == "dbname" else name.upper()
            connections["default"].settings_dict[key] = str(parts.get(name, ""))

    def declare(self, *indexes):
        Item._meta.indexes = list(indexes)

    def run(self, command, *arguments, **options):
        importlib.invalidate_caches()
        for name in [name for name in sys.modules if name.startswith("shop_migrations")]:
            del sys.modules[name]
        out = []

        class Out:
            def write(self, text):
                out.append(text)

            def flush(self): ...

        call_command(command, *arguments, stdout=Out(), no_color=True, **options)
        return "".join(out)

    def migrate(self, to=None):
        return self.run("migrate", "shop", *([to] if to else []))

    def makemigrations(self, name):
        self.run("makemigrations", "shop", name=name)
        (written,) = self.folder.glob(f"*_{name}.py")
        return written.read_text()


@pytest.fixture
def project(url, tmp_path, monkeypatch, lsh_model, connection):
    folder = tmp_path / "shop_migrations"
    folder.mkdir()
    (folder / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(settings, "MIGRATION_MODULES", {"shop": "shop_migrations"}, raising=False)
    monkeypatch.setattr(Item._meta, "indexes", Item._meta.indexes)
    store.save(connection, lsh_model)
    yield Project(folder, url)
    connections["default"].close()


@pytest.fixture
def shop(project, vectors):
    """300 items with prices 0 to 6 in turn, of two makers, and their index."""
    project.makemigrations("first")
    project.migrate()
    Maker.objects.bulk_create([Maker(id=1, name="a%'"), Maker(id=2, name="b")])
    Item.objects.bulk_create(
        Item(
            id=i + 1,
            name=f"item {i}",
            code=i + 1000,
            price=i % 7,
            maker_id=1 + i % 2,
            embedding=vector,
            half=vector,
        )
        for i, vector in enumerate(vectors)
    )
    return project


def exact(vectors, query, keep, k):
    """The ids of the nearest rows that Python lets through, by brute force."""
    order = np.argsort(((vectors - query) ** 2).sum(axis=1), kind="stable")
    return [int(i) + 1 for i in order if keep(int(i))][:k]


def test_migrations_make_swap_and_drop_an_index(shop, connection, vectors, caplog):
    def check(model, version):
        index = Handle.open(connection, "items_idx")
        assert (index.model, index.model_version, index.waiting()) == (model, version, 0)
        found = Item.objects.nearest("embedding", vectors[3], 5, candidates=ROWS)
        assert [item.pk for item in found] == exact(vectors, vectors[3], lambda i: True, 5)

    check("lsh", 1)
    store.save(connection, LSH(n_bits=16, random_state=9).fit(vectors).to_model("sharper"))
    shop.declare(HashIndex(fields=["embedding"], model="sharper", name="items_idx", candidates=90))
    text = shop.makemigrations("sharper")
    assert "RemoveIndex" in text
    assert "pg_hashindex.contrib.django.HashIndex(candidates=90, fields=['embedding'], " in text
    sql = shop.run("sqlmigrate", "shop", "0002")
    swap = r"_declare_swap\(index_name => .*'items_idx'\)+, model => 'sharper', candidates => 90\)"
    assert re.search(swap, sql)
    assert "drop_index" not in sql
    shop.migrate()
    assert "Run: pg-hashindex index encode items_idx" in caplog.text
    check("lsh", 1)
    index = Handle.open(connection, "items_idx")
    assert index.candidates != 90
    index.swap(force=True)
    check("sharper", 1)
    assert index.candidates == 90
    caplog.clear()
    shop.migrate("0001")  # by the codes that were kept
    check("lsh", 1)
    shop.migrate()
    check("sharper", 1)
    assert caplog.text == ""
    # Without vectors nothing is to be encoded.
    connection.execute("TRUNCATE shop_item CASCADE")
    store.save(connection, LSH(n_bits=8, random_state=1).fit(vectors).to_model("third"))
    shop.declare(HashIndex(fields=["embedding"], model="third", name="items_idx", candidates=90))
    shop.makemigrations("third")
    shop.migrate()
    assert caplog.text == ""
    index = Handle.open(connection, "items_idx")
    assert (index.model, index.encoded) == ("third", True)


def test_an_index_is_dropped_and_made_again(shop, connection, vectors, caplog):
    shop.declare()
    shop.makemigrations("none")
    shop.migrate()
    with pytest.raises(UnknownIndexError):
        Handle.open(connection, "items_idx")
    shop.migrate("0001")
    assert "Run: pg-hashindex index encode items_idx" in caplog.text
    assert not Handle.open(connection, "items_idx").encoded
    # Another field needs another index, and so does another name.
    shop.migrate()
    shop.declare(HashIndex(fields=["half"], model="lsh:1", access="scan", name="items_idx"))
    shop.makemigrations("half")
    shop.migrate()
    assert Handle.open(connection, "items_idx").column_name == "half"
    shop.declare(HashIndex(fields=["half"], model="lsh:1", name="renamed_idx"))
    assert "RenameIndex" not in shop.makemigrations("renamed")
    shop.migrate()
    assert [row[0] for row in connection.execute("SELECT name FROM hashindex.index")] == [
        "renamed_idx"
    ]
    found = Item.objects.nearest("half", vectors[3], 5, candidates=ROWS)
    assert [item.pk for item in found] == exact(vectors, vectors[3], lambda i: True, 5)
    # A table that Django drops takes its index along.
    shop.migrate("zero")
    assert connection.execute("SELECT count(*) FROM hashindex.index").fetchone() == (0,)
    assert shop.run("makemigrations", "shop", check_changes=True) != ""
    shop.migrate()
    assert Handle.open(connection, "renamed_idx").column_name == "half"


def test_migrations_are_read_once_for_all_apps(shop, connection, monkeypatch):
    """Each app sends a signal, and the migrations of all are read for one."""
    loaded = []

    class Loader(MigrationLoader):
        def load_disk(self):
            loaded.append(self)
            super().load_disk()

    monkeypatch.setattr(indexes, "MigrationLoader", Loader)
    with override_settings(INSTALLED_APPS=["fixtures.shop", "django.contrib.sessions"]):
        shop.migrate("zero")
    assert len(loaded) == 1
    assert connection.execute("SELECT count(*) FROM hashindex.index").fetchone() == (0,)


Q, F = models.Q, models.F

# A queryset, which rows Python keeps of it, and whether they are chosen by a subquery.
FILTERED = [
    (Item.objects.filter(price=3), lambda i: i % 7 == 3, False),
    (Item.objects.exclude(price__in=[1, 2]), lambda i: i % 7 not in (1, 2), False),
    (
        Item.objects.filter(Q(price__lt=2) | ~Q(name__endswith="7")),
        lambda i: i % 7 < 2 or i % 10 != 7,
        False,
    ),
    (Item.objects.filter(name__contains="%"), lambda i: False, False),
    (Item.objects.annotate(two=F("price") * 2).filter(two__gt=8), lambda i: i % 7 > 4, False),
    (Item.objects.filter(~Q(pk__in=[])), lambda i: True, False),
    (Item.objects.filter(pk__in=[]), lambda i: False, False),
    (Item.objects.none(), lambda i: False, False),
    (Item.objects.extra(where=["price %% 2 = %s"], params=[1]), lambda i: i % 7 % 2 == 1, False),
    (Item.objects.filter(maker__name="a%'"), lambda i: i % 2 == 0, True),
    (Item.objects.filter(pk__in=Item.objects.filter(price=4)), lambda i: i % 7 == 4, False),
    (
        Item.objects.annotate(n=models.Count("maker__items")).filter(n=ROWS // 2, price=1),
        lambda i: i % 7 == 1,
        True,
    ),
    (Item.objects.filter(maker__items__price=6).distinct(), lambda i: True, True),
]


def test_filters_restrict_the_search(shop, connection, vectors):
    query = vectors[3] + np.float32(0.1)
    for _ in range(2):  # rows that match are compared at once, and then looked up
        for queryset, keep, by_subquery in FILTERED:
            found = queryset.nearest("embedding", query, 7, candidates=ROWS)
            assert [item.pk for item in found] == exact(vectors, query, keep, 7), queryset.query
            values = found.query.get_compiler("default", elide_empty=False).as_sql()[1]
            (text,) = [v for v in values if isinstance(v, str) and '"shop_item".' in v] or [""]
            subquery = re.match(r'"shop_item"."id" IN \(SELECT (DISTINCT )?"shop_item"', text)
            assert bool(subquery) == by_subquery
        look_codes_up(connection)


async def test_a_search_is_a_queryset_like_any_other(shop, vectors):
    wanted = exact(vectors, vectors[3], lambda i: i % 7 == 3, 10)
    distances = np.sqrt(((vectors - vectors[3]) ** 2).sum(axis=1))

    def check():
        found = Item.objects.filter(price=3).nearest("embedding", vectors[3], candidates=ROWS)
        assert [item.distance for item in found] == pytest.approx(
            [distances[i - 1] for i in wanted], abs=1e-5
        )
        # Later filters are of the answers.
        assert found.filter(distance__lt=distances[wanted[4] - 1]).count() == 4
        assert [item.pk for item in found.filter(maker=1)] == [i for i in wanted if i % 2]
        assert [item.pk for item in found[2:5]] == wanted[2:5]
        assert list(found.values_list("pk", flat=True)) == wanted
        assert found.select_related("maker").first().maker.pk == 2 - wanted[0] % 2
        assert [item.pk for item in found.iterator()] == wanted
        again = Item.objects.all()
        again.query = pickle.loads(pickle.dumps(found.query))
        assert [item.pk for item in again] == wanted
        assert found.exists()
        assert not found.none().exists()
        assert found.aggregate(most=models.Max("distance"))["most"] == pytest.approx(
            distances[wanted[-1] - 1], abs=1e-5
        )
        makers = Maker.objects.filter(items__in=found[:3]).distinct()
        assert {maker.pk for maker in makers} == {2 - i % 2 for i in wanted[:3]}
        other = Item.objects.filter(pk__in=found).nearest("embedding", vectors[3], 3)
        assert [item.pk for item in other] == wanted[:3]
        # Vectors of pgvector's own types, and as Django reads them.
        for query in (Vector(vectors[3]), HalfVector(vectors[3]), Item.objects.get(pk=4).embedding):
            assert Item.objects.nearest("embedding", query, 1).get().pk == 4
        assert found.update(price=8) == 10
        assert set(Item.objects.filter(price=8).values_list("pk", flat=True)) == set(wanted)
        assert found.delete()[0] == 10  # those that are the nearest now
        assert Item.objects.count() == ROWS - 10
        connections["default"].close()

    await asyncio.to_thread(check)
    found = Item.objects.filter(price=8).nearest("embedding", vectors[3])
    assert {item.pk async for item in found} == set(wanted)
    await sync_to_async(connections.close_all)()


def test_a_composite_primary_key(shop, connection, vectors):
    class Pair(models.Model):
        pk = models.CompositePrimaryKey("maker", "number")
        number = models.IntegerField()
        maker = models.ForeignKey(Maker, models.CASCADE, db_constraint=False)
        embedding = VectorField(dimensions=8)
        objects = NearestQuerySet.as_manager()

        class Meta:
            app_label = "pairs"
            db_table = "pairs"
            indexes = [HashIndex(fields=["embedding"], model="lsh", name="pairs_idx")]  # noqa: RUF012

    with connections["default"].schema_editor() as editor:
        editor.create_model(Pair)
    Pair.objects.bulk_create(
        Pair(number=i // 2, maker_id=1 + i % 2, embedding=vector)
        for i, vector in enumerate(vectors)
    )
    assert Handle.open(connection, "pairs_idx").key_columns == ["maker_id", "number"]
    look_codes_up(connection)
    rows = Pair.objects.filter(number__gt=9)
    for asked, keep in (
        (Pair.objects.all(), lambda i: True),
        (rows.filter(maker=2), lambda i: i // 2 > 9 and i % 2 == 1),
        (rows.filter(maker__name="b"), lambda i: i // 2 > 9 and i % 2 == 1),
    ):
        wanted = [(1 + (i - 1) % 2, (i - 1) // 2) for i in exact(vectors, vectors[3], keep, 5)]
        for key in ({}, {"key": ["number", "maker"]}):
            found = asked.nearest("embedding", vectors[3], 5, candidates=ROWS, **key)
            assert [pair.pk for pair in found] == wanted


def test_another_key(shop, connection, vectors):
    given = {
        "fields": ["embedding"], "model": "lsh", "access": "scan", "name": "Its-1", "metric": "l2"
    }  # fmt: skip
    shop.declare(HashIndex(**given, key_columns="code"))
    shop.makemigrations("kept")
    shop.migrate()
    row = connection.execute("SELECT key_columns FROM hashindex.index").fetchone()
    assert row == (["sku"],)
    Handle.open(connection, "Its-1").encode()
    Item.objects.filter(price=2).update(price=9)
    look_codes_up(connection)
    for asked in (Item.objects.all(), Item.objects.filter(price=9, name__startswith="item 2")):
        kept = [int(item.name[5:]) for item in asked]
        found = asked.nearest("embedding", vectors[3], 5, candidates=ROWS)
        assert [item.pk for item in found] == exact(vectors, vectors[3], kept.__contains__, 5)
    with pytest.raises(DataError, match=r'"Its-1" has the key \(sku\).* joins its answers by \(id'):
        list(Item.objects.nearest("embedding", vectors[3], key="id"))
    # A key or a metric that is no longer declared is the default again.
    last = "SELECT i.key_columns, s.id FROM hashindex.index i, hashindex.index_set s"
    ((_, number),) = connection.execute(last)
    for left_out, key in (("metric", ["sku"]), ("key_columns", ["id"])):
        given = {"key_columns": "code", **given}
        del given[left_out]
        shop.declare(HashIndex(**given))
        shop.makemigrations(f"without_{left_out}")
        shop.migrate()
        number += 1
        assert connection.execute(last).fetchall() == [(key, number)]
    found = Item.objects.nearest("embedding", vectors[3], 5, candidates=ROWS)
    assert [item.pk for item in found] == exact(vectors, vectors[3], lambda i: True, 5)


def test_a_field_of_tenants(shop, connection, vectors):
    given = {
        "fields": ["embedding"], "model": "lsh", "access": "scan", "name": "its", "metric": "l2"
    }  # fmt: skip
    shop.declare(HashIndex(**given, tenant="maker"))
    shop.makemigrations("tenants")
    shop.migrate()
    index = Handle.open(connection, "its")
    assert index.tenant_column == "maker_id"
    index.encode()
    rows = Item.objects.filter(price__gte=0).filter(maker=2)
    expected = exact(vectors, vectors[3], lambda i: i % 2 == 1, 5)
    assert [i.pk for i in rows.nearest("embedding", vectors[3], 5, candidates=ROWS)] == expected
    forgotten = Item.objects.filter(price__gte=0)
    with pytest.raises(DataError, match="the search names none"):
        list(forgotten.nearest("embedding", vectors[3], 5))
    every = forgotten.nearest("embedding", vectors[3], 5, candidates=ROWS, all_tenants=True)
    assert [i.pk for i in every] == exact(vectors, vectors[3], lambda i: True, 5)
    drop_filtered_search(connection)
    found = Item.objects.filter(maker=2).nearest("embedding", vectors[3], 5, candidates=ROWS)
    assert [item.pk for item in found] == expected
    shop.declare(HashIndex(**given))
    shop.makemigrations("no_tenants")
    shop.migrate()
    assert Handle.open(connection, "its").tenant_column is None


def test_a_table_of_another_schema_with_uuid_keys(project, connection, vectors):
    class Far(models.Model):
        id = models.UUIDField(primary_key=True, default=uuid.uuid4)
        number = models.IntegerField()
        embedding = VectorField()
        objects = NearestQuerySet.as_manager()

        class Meta:
            app_label = "far"
            db_table = '"other"."Far"'
            indexes = [HashIndex(fields=["embedding"], model="lsh")]  # noqa: RUF012

    connection.execute("CREATE SCHEMA other")
    with connections["default"].schema_editor() as editor:
        editor.create_model(Far)
    Far.objects.bulk_create(Far(number=i, embedding=v) for i, v in enumerate(vectors[:50], 1))
    for asked, keep in (
        (Far.objects.all(), lambda i: True),
        (Far.objects.filter(number__gt=20), lambda i: i >= 20),
        (Far.objects.filter(number__gt=20).distinct("number"), lambda i: i >= 20),
    ):
        if asked.query.distinct:
            asked = Far.objects.filter(pk__in=asked)
        found = asked.nearest("embedding", vectors[3], 5, candidates=50)
        assert [far.number for far in found] == exact(vectors[:50], vectors[3], keep, 5)


def test_the_schema_is_installed_and_indexes_wait_for_their_model(
    project, make_database, vector_template, lsh_model, caplog
):
    project.use(url := make_database(vector_template))
    shutil.rmtree(project.folder)
    project.folder.mkdir()
    (project.folder / "__init__.py").touch()
    index = HashIndex(
        fields=["embedding"], model="lsh", access="scan", name="later_idx", defer=True
    )
    project.declare(index)
    project.makemigrations("first")
    (path,) = project.folder.glob("0001_*.py")
    path.write_text(
        path.read_text()
        .replace("import ", "from pg_hashindex.contrib.django import InstallHashindex\nimport ", 1)
        .replace("operations = [", "operations = [InstallHashindex(),", 1)
    )
    assert "CREATE TABLE hashindex.model" in project.run("sqlmigrate", "shop", "0001")
    project.migrate()
    assert 'index "later_idx" is not made: model "lsh" does not exist' in caplog.text
    with connect(url) as session:
        store.save(session, lsh_model)
        for _ in range(2):
            with connections["default"].schema_editor() as editor:
                editor.add_index(Item, index)
        assert Handle.open(session, "later_idx").waiting() == 0
    with pytest.raises(InUseError, match="there are models: lsh:1"):
        project.migrate("zero")
    with connect(url) as session:
        assert Handle.open(session, "later_idx").waiting() == 0
    project.declare()
    project.makemigrations("none")
    project.migrate()
    with connect(url) as session:
        session.execute("DELETE FROM hashindex.model")
    project.migrate("0001")  # deferred again
    project.migrate("zero")
    with connect(url) as session:
        assert session.execute("SELECT to_regnamespace('hashindex')").fetchone() == (None,)


def test_unworkable_options_are_refused_by_name(shop, vectors, monkeypatch):
    query = vectors[0]

    def refused(message, call, *arguments, **options):
        with pytest.raises(InvalidInputError, match=message):
            call(*arguments, **options)

    def declare(**options):
        return HashIndex(**{"fields": ["embedding"], "model": "lsh", "name": "i", **options})

    refused("'i' takes no expressions", HashIndex, F("embedding"), model="lsh", name="i")
    refused("takes no condition", declare, condition=Q(price=1))
    refused("takes no opclasses", declare, opclasses=["vector_l2_ops"])
    refused(
        "one field of vectors, got \\['embedding', 'half'\\]", declare, fields=["embedding", "half"]
    )
    refused("one field of vectors, got \\['-half'\\]", declare, fields=["-half"])
    refused("access 'trees' of index 'i' is unknown", declare, access="trees")
    refused("not a name or name:version", declare, model="")
    for index, message in (
        (declare(fields=["name"]), "on field 'name', a TextField; it needs a VectorField"),
        (declare(fields=["none"]), "names 'none', which is not a field"),
        (declare(key_columns="uid"), "names 'uid', which is not a field"),
        (declare(tenant="maker_id"), "names 'maker_id', which is not a field"),
    ):
        shop.declare(index)
        found = [each for each in checks.run_checks() if each.id == "hashindex.E001"]
        assert [message in each.msg and "shop.Item" in each.msg for each in found] == [True]
        refused(message, index.spec, Item)
    shop.declare(declare())
    (error,) = [
        each for each in checks.run_checks(databases=["lite"]) if each.id == "hashindex.E001"
    ]
    assert "'i' of shop.Item needs PostgreSQL, and database 'lite' is SQLite" in error.msg
    with connections["lite"].schema_editor() as editor:
        refused("hash index 'i' of shop.Item needs PostgreSQL", editor.add_index, Item, declare())
    with connections["default"].schema_editor() as editor:
        refused(
            "cannot be made .* concurrently", editor.add_index, Item, declare(), concurrently=True
        )
    refused(
        "database 'lite' is SQLite", list, Item.objects.using("lite").nearest("embedding", query)
    )
    refused("has no field 'colour'", Item.objects.nearest, "colour", query)
    refused("has no field 'maker__name'", Item.objects.nearest, "maker__name", query)
    refused("'name' of shop.Item is a TextField", Item.objects.nearest, "name", query)
    refused("0 hash indexes are declared on shop.Item.half", Item.objects.nearest, "half", query)
    refused("sliced or combined", Item.objects.all()[:5].nearest, "embedding", query)
    refused(
        "sliced or combined", Item.objects.union(Item.objects.all()).nearest, "embedding", query
    )
    # The join with the answers would drop rows of the other side.
    near, others = Item.objects.nearest("embedding", query, 3), Item.objects.filter(price=3)
    for combine in (operator.or_, operator.xor):
        refused("cannot be combined", combine, near, others)
        refused("cannot be combined", combine, others, near)
    for same in (Item.objects.none() | near, near | others.none()):
        assert "distance" in same.query.annotations
    refused("k is 0", Item.objects.nearest, "embedding", query, 0)
    refused("7", Item.objects.nearest, "embedding", query[:7])
    shop.declare(declare(), declare(name="j"))
    refused("2 hash indexes .*: i, j; name the one", Item.objects.nearest, "embedding", query)
    on_another = "declared on field 'embedding', and cannot search 'half'"
    refused(on_another, Item.objects.nearest, "half", query, index="i")
    found = Item.objects.nearest("embedding", query, 1, index="items_idx")
    assert found.get().pk == 1


def test_names_of_indexes_are_checked():
    """A name may come from a program's settings or its users: none becomes SQL as it is."""
    for name in ('x"(NULL); DROP TABLE shop_item; --', '"x"', "x%s", "", "hashindex.x", 7):
        refused = re.escape(f"index name {name!r} is not 1 to 40 letters")
        with pytest.raises(InvalidInputError, match=refused):
            Item.objects.nearest("embedding", [0.0] * 8, 1, index=name)


def test_an_index_of_an_abstract_model(shop):
    with isolate_apps("fixtures.shop"):

        class Base(models.Model):
            embedding = VectorField(dimensions=8)

            class Meta:
                app_label = "shop"
                abstract = True
                indexes = (HashIndex(fields=["embedding"], model="lsh", name="%(class)s_near"),)

        class Boot(Base):
            pass

    assert Boot._meta.indexes[0].spec(Boot).name == "boot_near"


class OnlyDefault:
    """A router by which nothing is migrated in other databases."""

    def allow_migrate(self, db, app_label, **hints):
        return db == "default"


def test_a_database_that_an_app_is_not_migrated_in():
    operation = InstallHashindex()
    with connections["lite"].schema_editor() as editor:
        for change in (operation.database_forwards, operation.database_backwards):
            with override_settings(DATABASE_ROUTERS=[OnlyDefault()]):
                change("shop", editor, None, None)
        with pytest.raises(InvalidInputError, match="needs PostgreSQL"):
            operation.database_forwards("shop", editor, None, None)


def test_a_set_of_pgvector(shop, connection, vectors, caplog):
    """It is complete at once, is swapped in both directions, and goes with its table."""

    def sets():
        return connection.execute(
            "SELECT s.state, coalesce(m.name || ':' || m.version, 'none'), s.access, s.stores, "
            "s.candidates FROM hashindex.index_set s "
            "LEFT JOIN hashindex.model m ON m.id = s.model_id "
            "WHERE s.index_name = 'near_idx' AND s.state = 'used'"
        ).fetchall()

    def declare(message, metric="l2", **options):
        index = HashIndex(fields=["embedding"], name="near_idx", metric=metric, **options)
        shop.declare(*Item._meta.indexes[:1], index)
        text = shop.makemigrations(message)
        shop.migrate()
        found = Item.objects.nearest("embedding", vectors[3], 5, candidates=ROWS, index="near_idx")
        if metric == "l2":
            assert [item.pk for item in found] == exact(vectors, vectors[3], lambda i: True, 5)
        return text

    assert "(fields=['embedding'], metric='l2', name='near_idx')" in declare("vectors")
    assert sets()[0][1:4] == ("none", "hnsw", False)
    declare("codes", model="lsh", candidates=90, access="hnsw", store=False)
    assert sets() == [("used", "lsh:1", "hnsw", False, 90)]
    sql = shop.run("sqlmigrate", "shop", "0003")
    assert "_declare_swap(" in sql
    assert "create_index" not in sql
    declare("stored", model="lsh", candidates=90, access="ivfflat", store=True)
    assert sets() == [("used", "lsh:1", "ivfflat", True, 90)]
    declare("settings", model="lsh", candidates=80, access="ivfflat", store=True)
    assert sets() == [("used", "lsh:1", "ivfflat", True, 80)]
    for to, state in (
        ("0004", ("used", "lsh:1", "ivfflat", True, 90)),
        ("0003", ("used", "lsh:1", "hnsw", False, 90)),
        ("0005", ("used", "lsh:1", "ivfflat", True, 80)),
    ):
        shop.migrate(to)
        assert sets() == [state]
    # Another metric is another index.
    declare("metric", model="none", metric="cosine")
    row = connection.execute("SELECT metric FROM hashindex.index WHERE name = 'near_idx'")
    assert row.fetchone() == ("cosine",)
    assert caplog.text == ""
    shop.migrate("zero")
    assert connection.execute("SELECT count(*) FROM hashindex.index").fetchone() == (0,)
    shop.migrate()
    assert sets()[0][1] == "none"
    # Lists take the place of a set of pgvector, at once where there are no rows.
    shop.declare(
        *Item._meta.indexes[:1],
        HashIndex(fields=["embedding"], model="lsh", access="scan", name="near_idx"),
    )
    shop.makemigrations("lists")
    shop.migrate()
    assert sets()[0][1:3] == ("lsh:1", "scan")
    shop.migrate("0006")
    assert sets()[0][1:3] == ("none", "hnsw")
