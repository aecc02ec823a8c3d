// The database, and the page about it. README's four statements are `learn` and `nearest`.
import { PGlite } from "./node_modules/@electric-sql/pglite/dist/index.js";
import { vector } from "./node_modules/@electric-sql/pglite-pgvector/dist/index.js";

const $ = (id) => document.getElementById(id);
const pause = () => new Promise((resume) => setTimeout(resume));
const escaped = (text) => text.replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt()};`);
const MODELS = { 1: "one_cut", 3: "texts", 5: "five_cuts" };
const SWEEP = [10, 20, 40, 80, 160, 320];
const bitsOf = (cuts) => 384 * cuts;
const code = (cuts) => `hashindex.code_${MODELS[cuts]}(embedding)`;

let db, script, names, sample;

// --- Statements

const learn = (cuts) => [
    `SELECT hashindex.train('${MODELS[cuts]}', 'packages', 'embedding', method => 'thermometer'`
        + `, cuts => ${cuts});`,
    `SELECT hashindex.create_functions('${MODELS[cuts]}');`,
    `CREATE INDEX ON packages USING hnsw\n`
        + `    ((${code(cuts)}::bit(${bitsOf(cuts)})) bit_hamming_ops) WITH (ef_construction = 128);`,
];

const candidatesOf = ({ cuts, candidates, section }, columns) => `
    SELECT ${columns} FROM packages${section ? " WHERE section = $2" : ""}
    ORDER BY ${code(cuts)}::bit(${bitsOf(cuts)}) <~> (SELECT ${code(cuts)} FROM query)
    LIMIT ${candidates}`;

const nearest = (settings) => `WITH query AS (SELECT embedding FROM packages WHERE name = $1)
SELECT name, description, embedding <=> (SELECT embedding FROM query) AS distance FROM (${
    candidatesOf(settings, "name, description, embedding")}
) candidates ORDER BY distance LIMIT 10;`;

const exact = ({ section }) => `WITH query AS (SELECT embedding FROM packages WHERE name = $1)
SELECT name, description, embedding <=> (SELECT embedding FROM query) AS distance
FROM packages${section ? " WHERE section = $2" : ""} ORDER BY distance LIMIT 10;`;

const codes = (settings) => `WITH query AS (SELECT embedding FROM packages WHERE name = $1)${
    candidatesOf(settings, `name, description, ${code(settings.cuts)}::text AS code`)}`;

async function timed(sql, parameters) {
    const began = performance.now();
    const { rows } = await db.query(sql, parameters);
    return { rows, ms: performance.now() - began };
}

const parametersOf = ({ name, section }) => (section ? [name, section] : [name]);

// The graph gives as many rows as candidates; with a filter it gives 400 at a time, until enough match.
const prepare = ({ candidates, section }) => db.exec(
    `SET hnsw.ef_search = ${section ? 400 : candidates}; SET hnsw.iterative_scan = ${section ? "relaxed_order" : "off"}`,
);

// Rows at the distance of the tenth are as good as it.
function recallOf(found, truth) {
    const limit = truth.at(-1).distance + 1e-7;
    return found.filter((row) => row.distance <= limit).length / truth.length;
}

// --- The database, kept as one file in IndexedDB

function kept(mode, act) {
    return new Promise((resolve, reject) => {
        const opening = indexedDB.open("pg_hashindex");
        opening.onupgradeneeded = () => opening.result.createObjectStore("databases");
        opening.onerror = () => reject(opening.error);
        opening.onsuccess = () => {
            // An exception in a listener would leave the promise open for ever.
            try {
                const transaction = opening.result.transaction("databases", mode);
                const request = act(transaction.objectStore("databases"));
                transaction.oncomplete = () => resolve(request.result);
                transaction.onabort = () => reject(transaction.error ?? request.error);
            } catch (error) {
                reject(error);
            }
        };
    });
}

async function forget() {
    await kept("readwrite", (store) => store.delete("packages"));
    location.reload();
}

function offerStart(data) {
    $("kept").innerHTML = `The database is kept in IndexedDB (${Math.round(data.size / 2 ** 20)} MB). <button>Start again</button>`;
    $("kept").querySelector("button").onclick = forget;
}

async function keep() {
    try {
        const data = await db.dumpDataDir("none");
        await kept("readwrite", (store) => store.put({ script, data }, "packages"));
        offerStart(data);
    } catch (error) {
        $("kept").textContent = `The browser does not keep the database: ${error.message}`;
    }
}

// --- The statements, and how long they took

function show(list) {
    $("steps").innerHTML = list.map(
        ({ text, sql, ms }) => `<li class="${sql ? "" : "soft"}">${sql ? `<pre>${escaped(sql)}</pre>` : `<div>${text}</div>`}<div class="time">${ms ?? ""}</div></li>`,
    ).join("");
}

const seconds = (ms) => (ms < 100 ? `${ms.toFixed(1)} ms` : `${(ms / 1000).toFixed(2)} s`);
const steps = [];
const learned = {};

async function step(list, entry, run) {
    list.push({ ...entry, ms: "…" });
    show([...steps, ...(list === steps ? [] : list)]);
    await pause();
    const began = performance.now();
    const result = await run();
    list.at(-1).ms = seconds(performance.now() - began);
    show([...steps, ...(list === steps ? [] : list)]);
    return result;
}

// Return whether codes of so many cuts had to be learned first.
async function ensure(cuts) {
    if (learned[cuts]) return false;
    const statements = [];
    const { rows: [{ there }] } = await db.query("SELECT to_regclass($1) IS NOT NULL AS there", [`packages_code_${MODELS[cuts]}_idx`]);
    for (const sql of learn(cuts)) {
        if (there) statements.push({ sql, ms: "kept" });
        else await step(statements, { sql }, () => db.exec(sql));
    }
    learned[cuts] = statements;
    return !there;
}

async function load(path) {
    const response = await fetch(path);
    if (!response.ok) throw new Error(`${path} is missing: run make browser`);
    return response;
}

async function open() {
    script = await (await load("schema.sql")).text();
    const before = await kept("readonly", (store) => store.get("packages")).catch(() => undefined);
    const there = before?.script === script;
    db = await step(steps, { text: there ? "PostgreSQL starts, with the database of your last visit" : "PostgreSQL starts" }, () => PGlite.create({
        extensions: { vector },
        ...(there ? { loadDataDir: before.data } : {}),
    })).catch((error) => {
        // Another version of PGlite cannot read it.
        if (there) return forget().then(() => new Promise(() => {}));
        throw error;
    });
    if (there) offerStart(before.data);
    else {
        // The script is for psql: a line that begins with a backslash is psql's own.
        await step(steps, { text: "The script of <code>pg-hashindex schema upgrade --sql</code>" }, () =>
            db.exec(`CREATE EXTENSION vector; ${script.replace(/^\\.*$/gm, "")}`));
        const blob = await (await load("packages.copy")).blob();
        await step(steps, { text: "5,000 rows" }, async () => {
            await db.exec(`CREATE TABLE packages (
                id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, name text NOT NULL UNIQUE,
                section text NOT NULL, description text NOT NULL, embedding vector(384) NOT NULL
            )`);
            await db.query("COPY packages (name, section, description, embedding) FROM '/dev/blob' (FORMAT binary)", [], { blob });
            await db.exec("ANALYZE packages");
        });
    }
}

// --- Drawings

const INK = [[0xe6, 0xea, 0xef], [0x42, 0x4a, 0x53], [0xd9, 0x73, 0x0d]];

function drawCode(bits, other) {
    const canvas = document.createElement("canvas");
    canvas.setAttribute("aria-hidden", "true");
    canvas.width = 192;
    canvas.height = bits.length / 192;
    const context = canvas.getContext("2d");
    const image = context.createImageData(canvas.width, canvas.height);
    for (let n = 0; n < bits.length; n++) {
        const colour = other && other[n] !== bits[n] ? 2 : +bits[n];
        image.data.set([...INK[colour], 255], 4 * n);
    }
    context.putImageData(image, 0, 0);
    return canvas;
}

function list(id, rows, right, attributes = () => ({})) {
    $(id).replaceChildren(...rows.map((row, place) => {
        const item = document.createElement("li");
        const { className = "", code: bits, query } = attributes(row, place);
        item.className = className;
        item.innerHTML = `<div><b>${escaped(row.name)}</b><span>${right(row, place)}</span></div>`;
        if (bits) item.append(drawCode(bits, query));
        else item.insertAdjacentHTML("beforeend", `<small>${escaped(row.description)}</small>`);
        item.title = row.description;
        return item;
    }));
}

const COLOURS = { 1: "#8a94a0", 3: "#3949ab", 5: "#2e7d5b" };
const measured = new Map();
const keyOf = ({ cuts, section }) => `${cuts} ${section}`;

function chart(id, value, least, most, format, now) {
    const x = (candidates) => 44 + (Math.log(candidates / 10) / Math.log(40)) * 440;
    const y = (number) => 224 - ((number - least) / (most - least)) * 204;
    const parts = [0, 1, 2, 3, 4].map((n) => {
        const at = least + ((most - least) * n) / 4;
        return `<line x1="44" x2="500" y1="${y(at)}" y2="${y(at)}" stroke="#e6eaef"/><text x="36" y="${y(at) + 4}" text-anchor="end">${format(at)}</text>`;
    });
    for (const n of SWEEP) parts.push(`<text x="${x(n)}" y="244" text-anchor="middle">${n}</text>`);
    for (const cuts of [1, 3, 5]) {
        const points = [...(measured.get(keyOf({ cuts, section: now.section })) ?? new Map())].sort((a, b) => a[0] - b[0]);
        if (!points.length) continue;
        const places = points.map(([candidates, point]) => [x(candidates), y(Math.min(most, value(point)))]);
        parts.push(`<polyline points="${places.map((place) => place.join()).join(" ")}" fill="none" stroke="${COLOURS[cuts]}" stroke-width="2"/>`);
        for (const [left, top] of places) parts.push(`<circle cx="${left}" cy="${top}" r="2.5" fill="${COLOURS[cuts]}"/>`);
        const here = points.find(([candidates]) => candidates === now.candidates);
        if (cuts === now.cuts && here) {
            const [left, top] = [x(here[0]), y(Math.min(most, value(here[1])))];
            parts.push(`<circle cx="${left}" cy="${top}" r="6" fill="none" stroke="${COLOURS[cuts]}" stroke-width="2"/>`);
        }
    }
    $(id).innerHTML = parts.join("");
}

function drawCharts(now) {
    const points = [1, 3, 5].flatMap((cuts) => [...(measured.get(keyOf({ cuts, section: now.section })) ?? new Map()).values()]);
    const lowest = Math.min(...points.map((point) => point.recall));
    chart("recalls", (point) => point.recall, [0.8, 0.6, 0.2, 0].find((least) => least <= lowest), 1, (n) => n.toFixed(2), now);
    const most = Math.max(4, Math.ceil(Math.max(0, ...points.map((point) => point.ms)) / 4) * 4);
    chart("times", (point) => point.ms, 0, most, (n) => n.toFixed(0), now);
}

// --- The search

let turn = 0;
const truths = new Map();

async function measure(settings, candidates) {
    const key = keyOf(settings);
    if (!measured.has(key)) measured.set(key, new Map());
    if (measured.get(key).has(candidates)) return;
    await prepare({ ...settings, candidates });
    const times = [];
    let recall = 0;
    for (const name of sample) {
        const parameters = parametersOf({ ...settings, name });
        const query = `${name} ${settings.section}`;
        if (!truths.has(query)) truths.set(query, (await timed(exact(settings), parameters)).rows);
        const { rows, ms } = await timed(nearest({ ...settings, candidates }), parameters);
        times.push(ms);
        recall += recallOf(rows, truths.get(query)) / sample.length;
    }
    measured.get(key).set(candidates, { recall, ms: times.sort((a, b) => a - b)[times.length >> 1] });
}

function read() {
    const settings = {
        name: $("name").value.trim(), section: $("section").value, cuts: +$("cuts").value, candidates: +$("candidates").value,
    };
    $("cuts").setAttribute("aria-valuetext", `${settings.cuts}: ${bitsOf(settings.cuts)} bits`);
    $("cuts-now").textContent = `${settings.cuts}: ${bitsOf(settings.cuts).toLocaleString("en")} bits`;
    $("candidates-now").textContent = settings.candidates;
    return settings;
}

async function answer(settings) {
    const parameters = parametersOf(settings);
    const [truth, found] = [await timed(exact(settings), parameters), await timed(nearest(settings), parameters)];
    const { rows: [query] } = await db.query(`SELECT ${code(settings.cuts)}::text AS code FROM packages WHERE name = $1`, [settings.name]);
    const candidates = (await db.query(codes(settings), parameters)).rows;
    for (const row of candidates) row.differing = [...row.code].filter((bit, n) => bit !== query.code[n]).length;
    candidates.sort((a, b) => a.differing - b.differing);
    const place = new Map(candidates.map((row, n) => [row.name, n]));
    const distance = (row) => row.distance.toFixed(3);
    const recall = recallOf(found.rows, truth.rows);
    $("recall").textContent = `${Math.round(recall * 100)} %`;
    $("ms").textContent = `${found.ms.toFixed(1)} ms`;
    $("exact-ms").textContent = `${truth.ms.toFixed(1)} ms`;
    $("bytes").textContent = `${bitsOf(settings.cuts) / 8} bytes`;
    $("query-name").textContent = settings.name;
    $("code").replaceChildren(drawCode(query.code));
    $("shown").textContent = `${Math.min(10, candidates.length)} of ${candidates.length} candidates; bits that differ`;
    list("by-code", candidates.slice(0, 10), (row) => row.differing, (row) => ({ code: row.code, query: query.code }));
    list("re-ranked", found.rows, (row) => `#${place.get(row.name) + 1} · ${distance(row)}`);
    const names = new Set(found.rows.map((row) => row.name));
    list("exact", truth.rows, (row) => `${names.has(row.name) ? "" : "not found · "}${distance(row)}`, (row) => ({
        className: names.has(row.name) ? "" : "missing",
    }));
}

// Runs one after another; a newer change of the form ends what an older one began.
let running = Promise.resolve();

function update() {
    const mine = ++turn;
    const settings = read();
    const known = names.includes(settings.name);
    $("failure").hidden = true;
    $("name").classList.toggle("missing", !known);
    $("name").setAttribute("aria-invalid", !known);
    if (!known) return;
    running = running.then(async () => {
        if (mine !== turn) return;
        if (await ensure(settings.cuts)) await keep();
        show([...steps, ...learned[settings.cuts], { sql: nearest(settings), ms: "" }]);
        await prepare(settings);
        await answer(settings);
        for (const candidates of [settings.candidates, ...SWEEP]) {
            await pause();
            if (mine !== turn) return;
            await measure(settings, candidates);
            drawCharts(settings);
        }
        document.body.dataset.state = "measured";
    }).catch(fail);
}

function suggest() {
    const typed = $("name").value.trim().toLowerCase();
    const starts = names.filter((name) => name.startsWith(typed));
    const rest = names.filter((name) => name.includes(typed) && !name.startsWith(typed));
    $("names").innerHTML = [...starts, ...rest].slice(0, 20).map((name) => `<option value="${escaped(name)}">`).join("");
}

function fail(error) {
    console.error(error);
    $("failure").hidden = false;
    $("failure").textContent = error.message;
    document.body.dataset.state = "failed";
}

try {
    // Browsers fill in what was chosen before a reload.
    document.querySelector("form").reset();
    document.querySelector("form").addEventListener("submit", (event) => event.preventDefault());
    await open();
    const fresh = await ensure(3);
    ({ names } = (await db.query("SELECT array_agg(name ORDER BY id) AS names FROM packages")).rows[0]);
    sample = names.filter((_, n) => n % 200 === 0);
    const { rows } = await db.query("SELECT section, count(*)::integer AS n FROM packages GROUP BY section HAVING count(*) >= 10 ORDER BY section");
    $("section").insertAdjacentHTML("beforeend", rows.map(({ section, n }) => `<option value="${escaped(section)}">${escaped(section)} (${n})</option>`).join(""));
    const settings = read();
    await prepare(settings);
    await timed(nearest(settings), parametersOf(settings));
    await answer(settings);
    $("search").hidden = false;
    document.body.dataset.answered = Math.round(performance.now());
    $("answered").textContent = `The first answer was here after ${seconds(performance.now())}.`;
    if (fresh) await keep();
    for (const id of ["name", "section", "cuts", "candidates"]) $(id).addEventListener("input", update);
    $("name").addEventListener("input", suggest);
    suggest();
    update();
} catch (error) {
    fail(error);
}
