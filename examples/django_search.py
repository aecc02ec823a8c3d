"""Django in one file: a model with an index, and a search that is a queryset."""

import os

import django
from django.conf import settings
from django.db import connection, models
from pgvector.django import VectorField
from psycopg.conninfo import conninfo_to_dict

from pg_hashindex.contrib.django import HashIndex, NearestQuerySet

options = conninfo_to_dict(os.environ["PG_HASHINDEX_DATABASE_URL"])
database = {"ENGINE": "django.db.backends.postgresql", "NAME": options.pop("dbname")}
settings.configure(DATABASES={"default": {**database, "OPTIONS": options}})
django.setup()


class Package(models.Model):
    name = models.TextField()
    section = models.TextField()
    embedding = VectorField(dimensions=384)

    objects = NearestQuerySet.as_manager()

    class Meta:
        app_label = "catalogue"
        db_table = "packages"
        indexes = (HashIndex(fields=["embedding"], model="catalogue", name="packages_dj_idx"),)


# In a project, `model train` and a migration do this: see docs/django.md.
with connection.cursor() as cursor:
    cursor.execute("SELECT hashindex.train('catalogue', 'packages', 'embedding')")
    (made,) = cursor.fetchone()
with connection.schema_editor() as editor:
    editor.add_index(Package, Package._meta.indexes[0])

query = Package.objects.get(name="nginx").embedding
for package in Package.objects.nearest("embedding", query, k=3):
    print(f"{package.distance:.3f} {package.name}")
games = Package.objects.filter(section="games").nearest("embedding", query, k=3)
print("games:", ", ".join(games.values_list("name", flat=True)))

with connection.schema_editor() as editor:
    editor.remove_index(Package, Package._meta.indexes[0])
with connection.cursor() as cursor:
    cursor.execute("DELETE FROM hashindex.model WHERE concat(name, ':', version) = %s", [made])
connection.close()
