"""Tenants: each customer searches its own rows, and row security keeps them apart."""

import os

from pg_hashindex import HashIndex, connect, store

with connect(os.environ["PG_HASHINDEX_DATABASE_URL"]) as connection:
    # The section of a package stands for the customer that it belongs to.
    connection.execute(
        "CREATE TABLE documents AS SELECT section AS customer, id, name, embedding FROM packages; "
        "ALTER TABLE documents ADD PRIMARY KEY (customer, id)"
    )
    # A model is learned, which has the name of the index.
    index = HashIndex.create(
        connection, "documents_idx", table="documents", column="embedding", tenant="customer",
        access="lists",
    )  # fmt: skip

    for customer, id_ in connection.execute(
        "SELECT customer, min(id) FROM documents GROUP BY customer ORDER BY count(*) DESC LIMIT 3"
    ).fetchall():
        found = connection.execute(
            "SELECT d.name FROM hashindex.search_documents_idx("
            "(SELECT embedding FROM documents WHERE customer = %s AND id = %s), 4, tenant => %s) s "
            "JOIN documents d USING (customer, id) ORDER BY s.distance",
            [customer, id_, customer],
        )
        print(f"{customer}: {', '.join(name for (name,) in found)}")

    # Rows, codes and landmarks of other customers are out of this role's sight.
    connection.execute(
        "DROP ROLE IF EXISTS example_app; CREATE ROLE example_app; "
        "GRANT SELECT ON documents TO example_app; "
        "ALTER TABLE documents ENABLE ROW LEVEL SECURITY; "
        "CREATE POLICY own ON documents USING (customer = current_setting('app.customer'))"
    )
    index.grant("example_app")
    connection.execute("SET ROLE example_app; SET app.customer = 'web'")
    for customer in ("web", "games"):
        (n,) = connection.execute(
            "SELECT count(*) FROM hashindex.search_documents_idx(%s, 5, tenant => %s)",
            [str([1.0] * 384), customer],
        ).fetchone() or (0,)
        print(f"as the customer web, {n} of 5 rows of {customer}")
    connection.execute("RESET ROLE")

    index.drop()
    connection.execute("DROP TABLE documents; DROP ROLE example_app")
    store.drop(connection, index.name)
