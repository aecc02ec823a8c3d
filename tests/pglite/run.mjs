// node run.mjs FOLDER: runs the statements of standard input (a JSON array) in PGlite; prints the rows of each.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const folder = process.argv[2];
const load = (name) => import(pathToFileURL(join(folder, "node_modules/@electric-sql", name, "dist/index.js")));
const { PGlite } = await load("pglite");
const { vector } = await load("pglite-pgvector");

const db = await PGlite.create({ extensions: { vector } });
const blob = new Blob([readFileSync(join(folder, "packages.copy"))]);
const answers = [];
for (const sql of JSON.parse(readFileSync(0, "utf8"))) {
    try {
        const results = sql.startsWith("COPY") ? [await db.query(sql, [], { blob })] : await db.exec(sql);
        answers.push(results.at(-1).rows.map(Object.values));
    } catch (error) {
        throw new Error(`${error.message} (${error.hint ?? ""})\n${sql.slice(0, 500)}`);
    }
}
console.log(JSON.stringify(answers));
