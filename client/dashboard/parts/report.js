/*
 * report: what a job would find in a file, and single lines as the model will see them.
 */
import * as api from '../api.js';
import { errorNotice, notice } from './controls.js';
import { el, icon, text } from './dom.js';
import * as format from './format.js';

const PROBLEMS = 20;
const levelNames = { fatal: 'never taken', refused: 'refused', warning: 'told' };

/* options: {model, max_len, data_rules, overlong}; absent ones are left out. */
export function reportQuery(options) {
    return new URLSearchParams(Object.entries(options).filter(([, value]) => value !== undefined &&
        value !== '')).toString();
}

function stat(name, value) {
    return el('div', { class: 'stat' }, el('dt', {}, name), el('dd', {}, value));
}

/* ---- histogram ------------------------------------------------------------------------------- */

function rangeName(bin) {
    return bin.to === null ? `${format.count(bin.from)} and more` :
        `${format.count(bin.from)} to ${format.count(bin.to)}`;
}

/* A list whose bars are drawn; each says its own numbers. */
function histogram(tokens) {
    const bins = tokens.histogram;
    const most = Math.max(...bins.map((bin) => bin.lines), 1);
    return el('figure', { class: 'histogram' }, el('figcaption', { class: 'label' },
        'Lines by their length in tokens'),
        el('ul', { class: 'bins' }, bins.map((bin) => {
            const bar = el('span', { class: 'bin-bar' });
            bar.style.inlineSize = `${(bin.lines / most) * 100}%`;
            return el('li', { class: 'bin' }, el('span', { class: 'bin-name num' }, rangeName(bin)),
                el('span', { class: 'bin-track', 'aria-hidden': 'true' }, bar),
                    el('span', { class: 'bin-count num' }, format.plural(bin.lines, 'line')));
        })));
}

/* ---- findings -------------------------------------------------------------------------------- */

function problemTable(problems) {
    return el('div', { class: 'table-scroll problems', tabindex: 0, role: 'region',
        'aria-label': 'Findings' },
        el('table', { class: 'table table-dense' },
            el('thead', {},
                el('tr', {}, ['Line', 'Column', 'Field', 'Reason',
                    ''].map((name, i) => el('th', { scope: 'col', class: i < 2 ? 'num' : null },
                name || el('span', { class: 'visually-hidden' }, 'What becomes of it'))))),
            el('tbody', {}, problems.map((one) => el('tr', {},
                el('td', { class: 'num' }, one.line || '–'),
                    el('td', { class: 'num' }, one.column || '–'),
                el('td', {}, one.field ? el('code', {}, one.field) : '–'),
                    el('td', { class: 'wrap' }, one.reason),
                el('td', { class: 'nowrap' }, el('span', { class: 'tag', 'data-level': one.level },
                    levelNames[one.level] || one.level)))))));
}

function verdict(report) {
    if (report.accepted)
        return notice(report.problems.warnings ? 'warn' : 'success',
            el('p', {}, el('strong', {}, 'A job takes this file.'),
            report.problems.warnings ?
                ` ${format.plural(report.problems.warnings, 'thing')} to know about it:` :
                    ' Nothing in it is amiss.'));
    return notice('error', el('p', {}, el('strong', {}, 'A job would refuse this file. '),
        report.refusal || ''));
}

function pairsWords(words, pairs) {
    if (!pairs || pairs.count === 0)
        return null;
    const shown = pairs.data.slice(0, 5).map((one) => `${one.line} as ${one.same_as}`).join(', ');
    return el('p', { class: 'small muted' },
        `${format.plural(pairs.count, 'line')} ${words}: ${shown}${pairs.count > 5 ? ' …' : ''}`);
}

export class Report {
    constructor() {
        this.element = el('div', { class: 'stack-wide' });
        this.turn = 0;
    }

    clear() {
        this.turn++;
        this.element.replaceChildren();
    }

    /* The report, or null: a later call wins, or it was refused. */
    async show(file, options) {
        const mine = ++this.turn;
        this.element.setAttribute('aria-busy', 'true');
        try {
            const report = await api.get(
                `/v1/files/${api.part(file)}/report?` +
                reportQuery({ ...options, problems_limit: PROBLEMS }));
            if (mine !== this.turn)
                return null;
            this.draw(file, options, report);
            return report;
        } catch (error) {
            if (mine === this.turn && error.status !== 401)
                this.element.replaceChildren(errorNotice(error));
        } finally {
            if (mine === this.turn)
                this.element.removeAttribute('aria-busy');
        }
        return null;
    }

    draw(file, options, report) {
        const tokens = report.tokens;
        const found = el('div', { class: 'stack' });
        this.element.replaceChildren(verdict(report),
            el('dl', { class: 'stats' }, stat('Lines', format.count(report.lines)),
                stat('Examples', format.count(report.examples)),
                tokens ? [stat('Tokens', format.count(tokens.kept)),
                    stat('Learned', format.count(tokens.trained)),
                          stat('Longest', format.count(tokens.longest)),
                              stat('Median', format.count(tokens.p50))] : null),
            found, tokens && tokens.histogram.length ? histogram(tokens) : null,
            pairsWords('say what another line says', report.duplicates));
        if (this.element.lastChild.nodeType === Node.TEXT_NODE)
            this.element.lastChild.remove();
        this.drawProblems(found, file, options, report.problems);
    }

    drawProblems(place, file, options, problems) {
        if (!problems.data.length)
            return;
        const table = problemTable(problems.data);
        const after = problems.after + problems.data.length;
        const more = problems.has_more ? el('button',
            { class: 'button button-small', type: 'button', onclick: async () => {
            const next = await api.get(
                `/v1/files/${api.part(file)}/report?` +
                reportQuery({ ...options, problems_limit: 200, problems_after: after }));
            more.remove();
            this.drawProblems(place, file, options, next.problems);
        } }, `${format.count(problems.total - after)} more`) : null;
        place.append(table);
        if (more)
            place.append(more);
    }
}

/* ---- a line as the model sees it ------------------------------------------------------------- */

const kindNames = { read: 'read', learned: 'learned', cut: 'cut off' };

/* Tokens as texts of one kind each. A character may be several tokens of single bytes. */
function runs(example) {
    const all = [];
    let bytes = [];
    const add = (kind, piece) => {
        const last = all[all.length - 1];
        if (last && last.kind === kind)
            last.text += piece;
        else
            all.push({ kind, text: piece });
    };
    let kindNow = 'read';
    const flush = () => {
        if (bytes.length)
            add(kindNow, new TextDecoder().decode(new Uint8Array(bytes)));
        bytes = [];
    };
    example.tokens.forEach((token, i) => {
        const kind = i >= example.kept_count ? 'cut' : token.mask ? 'learned' : 'read';
        const byte = token.piece.match(/^<0x([0-9A-F]{2})>$/);
        if (kind !== kindNow || !byte)
            flush();
        kindNow = kind;
        if (byte)
            bytes.push(parseInt(byte[1], 16));
        else
            add(kind, token.piece.replaceAll('\u2581', ' '));
    });
    flush();
    return all;
}

function coloured(example) {
    const parts = example.tokens && example.tokens.length ? runs(example) :
        [{ kind: 'read', text: example.prompt || '' },
            { kind: 'learned', text: example.target || '' }];
    return el('pre', { class: 'example', tabindex: 0,
        'aria-label': 'The line as the model sees it' },
            parts.filter((part) => part.text).map((part) =>
        el('span', { class: `run run-${part.kind}` },
            el('span', { class: 'visually-hidden' }, `[${kindNames[part.kind]}:] `), part.text)));
}

function legend(example) {
    const entry = (kind, words) => el('li', {}, el('span',
        { class: `swatch run run-${kind}`, 'aria-hidden': 'true' }, 'Aa'), words);
    const cut = example.token_count > example.kept_count;
    return el('ul', { class: 'legend small' }, entry('read', 'prompt: read, masked in the loss'),
        entry('learned', 'target: learned'),
        cut ? entry('cut', 'cut off') : null);
}

export class Example {
    constructor() {
        this.line = 1;
        this.lines = 1;
        this.input = el('input', { class: 'input num', type: 'number', id: 'example-line', min: 1,
            value: 1, onchange: () => this.to(Number(this.input.value)) });
        this.before = el('button', { class: 'button button-icon', type: 'button',
            'aria-label': 'The line before', onclick: () => this.to(this.line - 1) }, icon('left'));
        this.next = el('button', { class: 'button button-icon', type: 'button',
            'aria-label': 'The next line', onclick: () => this.to(this.line + 1) }, icon('right'));
        this.of = el('span', { class: 'muted num' });
        this.body = el('div', { class: 'stack' });
        this.element = el('div', { class: 'stack' },
            el('div', { class: 'row' }, el('label', { for: 'example-line', class: 'label' },
                'Line'), this.before, this.input, this.next, this.of), this.body);
        this.turn = 0;
    }

    to(line) {
        this.line = Math.max(1, Math.min(this.lines, Math.round(line) || 1));
        this.input.value = this.line;
        this.read();
    }

    show(file, options, lines) {
        this.file = file;
        this.options = options;
        this.lines = Math.max(1, lines);
        this.input.max = this.lines;
        text(this.of, `of ${format.count(this.lines)}`);
        this.to(this.line);
    }

    async read() {
        const mine = ++this.turn;
        this.before.disabled = this.line <= 1;
        this.next.disabled = this.line >= this.lines;
        try {
            const example = await api.get(
                `/v1/files/${api.part(this.file)}/examples/${this.line}?` +
                reportQuery(this.options));
            if (mine === this.turn)
                this.draw(example);
        } catch (error) {
            if (mine === this.turn && error.status !== 401)
                this.body.replaceChildren(errorNotice(error));
        }
    }

    draw(example) {
        this.body.replaceChildren(legend(example), coloured(example),
            el('p', { class: 'small muted num' }, example.token_count ?
                    `${format.plural(example.token_count, 'token')}, ` +
                `${format.count(example.trained_count)} of them learned` +
                `${example.has_more_tokens ? '; only the first are shown' : ''}` :
                    'Choose a base model to see it in tokens.'));
        if (example.problems.length)
            this.body.append(problemTable(example.problems));
        else if (!example.usable)
            this.body.append(notice('warn', el('p', {}, 'A job leaves this line out.')));
    }
}
