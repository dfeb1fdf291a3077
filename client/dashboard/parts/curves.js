/*
 * curves: a job's charts, with other jobs' losses over them.
 *
 * The daemon thins what it sends; live steps are appended. When those are many the whole is read
 * anew, so that a long job's charts stay as light as they were.
 */
import { Chart, Group, load } from './chart.js';
import { errorNotice } from './controls.js';
import { el, icon, throttle } from './dom.js';
import * as format from './format.js';
import { announce } from './page.js';
import { readSeries } from './series.js';

const POINTS = 1500;
const APPENDED_MAX = 1500;
const DRAW_MS = 250;
const DETAIL_MS = 250;
const TOKENS = ['series-1', 'series-3', 'series-4', 'series-5', 'series-6'];
/* title, [key, name]…, a value in words, and as shortly as an axis has room for */
const smallCharts = [
    ['Learning rate', [['learning_rate', 'learning rate']], format.number],
    ['Gradient norm', [['grad_norm', 'gradient norm']], format.number],
    ['Tokens per second', [['tokens_per_second', 'tokens/s']], format.count],
    ['Accuracy', [['train_mean_token_accuracy', 'training'],
                  ['full_valid_mean_token_accuracy', 'validation']],
     (x) => format.percent(x, 1), (x) => format.percent(x)],
    ['Device memory', [['memory_used_bytes', 'in use']], format.bytes],
];

/* Each value drawn towards those before it; the first steps are not pulled to zero. */
export function smooth(values, weight) {
    let mean = 0;
    let seen = 0;
    return values.map((value) => {
        if (value === null || !Number.isFinite(value) || weight === 0)
            return value;
        mean = mean * weight + (1 - weight) * value;
        seen++;
        return mean / (1 - weight ** seen);
    });
}

const finite = (x) => (typeof x === 'number' && Number.isFinite(x) ? x : null);

/* One job's steps: what the daemon sent, then what came live. */
class Curve {
    constructor(job, token) {
        Object.assign(this, { job, token, steps: new Map(), appended: 0 });
    }

    async read() {
        const series = await readSeries(this.job.id, { points: POINTS });
        const last = series.rows.length ? series.rows[series.rows.length - 1].step : -1;
        const live = [...this.steps].filter(([step]) => step > last);
        this.steps = new Map(series.rows.map((row) => [row.step, row]));
        live.forEach(([step, row]) => this.steps.set(step, row));
        this.appended = live.length;
        this.isThin = series.isThin;
        this.sorted = null;
    }

    /* More of the steps of a part that is looked at closely; what is left out elsewhere stays left
     * out. */
    async readPart(first, last) {
        if (!this.isThin)
            return;
        const series = await readSeries(this.job.id, { points: POINTS, first, last });
        series.rows.forEach((row) => this.steps.set(row.step,
            { ...(this.steps.get(row.step) || {}), ...row }));
        this.hasParts = true;
        this.sorted = null;
    }

    add(data) {
        this.steps.set(data.step, { ...(this.steps.get(data.step) || {}), ...data });
        this.appended++;
        this.sorted = null;
    }

    rows() {
        if (!this.sorted)
            this.sorted = [...this.steps.values()].sort((a, b) => a.step - b.step);
        return this.sorted;
    }
}

export class Curves {
    constructor(job, findJobs) {
        this.findJobs = findJobs;
        this.curves = [new Curve(job, TOKENS[0])];
        this.weight = 0;
        this.isOpen = true;
        this.group = new Group((range) => this.onZoom(range));
        this.loss = new Chart('Loss', { height: 320, words: format.loss, axisWords: format.number,
            group: this.group });
        this.small = smallCharts.map(([title, keys, words, axisWords]) =>
            ({ keys, chart: new Chart(title, { height: 150, words, axisWords,
                group: this.group }) }));
        this.smallElement = el('div', { class: 'small-charts', 'data-count': smallCharts.length },
            this.small.map(({ chart }) => chart.element));
        this.error = el('div', {});
        this.chips = el('ul', { class: 'row chips' });
        this.draw = throttle(DRAW_MS, () => this.paint());
        this.element = el('section', { class: 'section', 'aria-labelledby': 'curves' },
            el('div', { class: 'section-head' }, el('h2', { id: 'curves' }, 'Curves'),
                this.makeTools()),
            this.chips, this.error, this.loss.element,
            this.smallElement);
    }

    makeTools() {
        const amount = el('output', { class: 'num small', for: 'smoothing' }, '0');
        const range = el('input', { id: 'smoothing', type: 'range', min: 0, max: 0.98, step: 0.02,
            value: 0 });
        range.addEventListener('input', () => {
            this.weight = Number(range.value);
            amount.textContent = this.weight === 0 ? '0' : this.weight.toFixed(2);
            this.draw();
        });
        const log = el('input', { id: 'logscale', type: 'checkbox' });
        log.addEventListener('change', () => this.loss.setLog(log.checked));
        this.reset = el('button', { class: 'button button-small', type: 'button', hidden: true },
            icon('search'), 'Show all steps');
        this.reset.addEventListener('click', () => this.group.zoom(null));
        this.select = el('select', { class: 'select compare',
            'aria-label': 'Lay another job over it' },
            el('option', { value: '' }, 'Compare with …'));
        this.select.addEventListener('pointerdown', () => this.fillSelect());
        this.select.addEventListener('focus', () => this.fillSelect());
        this.select.addEventListener('change', () => this.compare(this.select.value));
        return el('div', { class: 'row tools' }, this.reset,
            el('label', { class: 'tool small', for: 'smoothing' }, 'Smoothing', range, amount),
            el('label', { class: 'tool small', for: 'logscale' }, log, 'Logarithmic'), this.select);
    }

    /* ---- other jobs -------------------------------------------------------------------------- */

    async fillSelect() {
        if (this.isFilled)
            return;
        this.isFilled = true;
        try {
            this.jobs = (await this.findJobs())
                .filter((job) => job.completed_steps > 0 && job.id !== this.curves[0].job.id);
        } catch (error) {
            this.isFilled = false;
            return;
        }
        this.select.append(...this.jobs.map((job) => el('option', { value: job.id },
            `${job.name} · ${format.loss(job.train_loss)} · ${format.ago(job.created_at)}`)));
        if (!this.jobs.length)
            this.select.firstChild.textContent = 'No other job has steps';
    }

    async compare(id) {
        const job = (this.jobs || []).find((one) => one.id === id);
        this.select.value = '';
        if (!job || this.curves.some((curve) => curve.job.id === id))
            return;
        if (this.curves.length >= TOKENS.length)
            this.curves.pop();
        const token = TOKENS.find((one) => !this.curves.some((curve) => curve.token === one));
        const curve = new Curve(job, token);
        this.curves.push(curve);
        await this.readOne(curve);
        this.showChips();
        announce(`${job.name} is laid over the curves`);
    }

    remove(curve) {
        this.curves = this.curves.filter((one) => one !== curve);
        this.showChips();
        this.paint();
        this.select.focus();
    }

    showChips() {
        this.chips.replaceChildren(...this.curves.slice(1).map((curve) => {
            const key = el('span', { class: 'legend-key' });
            key.style.setProperty('--key', `var(--${curve.token})`);
            return el('li', { class: 'chip' }, key,
                el('a', { class: 'cut', href: `#/jobs/${curve.job.id}` }, curve.job.name),
                el('button', { class: 'button button-quiet button-icon button-small',
                    type: 'button',
                               'aria-label': `Take ${curve.job.name} away`,
                                   onclick: () => this.remove(curve) },
                icon('stop')));
        }));
    }

    /* ---- data -------------------------------------------------------------------------------- */

    async readOne(curve) {
        try {
            await Promise.all([load(), curve.read()]);
            this.error.replaceChildren();
        } catch (error) {
            this.error.replaceChildren(errorNotice(error));
            return;
        }
        if (this.isOpen)
            this.paint();
    }

    async read() {
        await Promise.all(this.curves.map((curve) => this.readOne(curve)));
    }

    onZoom(range) {
        this.reset.hidden = !range;
        clearTimeout(this.looking);
        if (range)
            this.looking = setTimeout(() => this.readParts(range), DETAIL_MS);
        else
            this.curves.filter((curve) => curve.hasParts).forEach((curve) => {
                curve.hasParts = false;
                this.readOne(curve);
            });
    }

    async readParts([low, high]) {
        const first = Math.max(1, Math.floor(low));
        const last = Math.max(first, Math.ceil(high));
        try {
            await Promise.all(this.curves.map((curve) => curve.readPart(first, last)));
        } catch (error) {
            return; /* the thin curve is still right */
        }
        this.paint();
    }

    /* An event of metrics or validation of any job that is shown. */
    add(event) {
        const curve = this.curves.find((one) => one.job.id === event.fine_tuning_job_id);
        if (!curve || !event.data || !Number.isFinite(event.data.step))
            return;
        curve.add(event.data);
        if (curve.appended > APPENDED_MAX) {
            curve.appended = 0;
            this.readOne(curve);
        } else {
            this.draw();
        }
    }

    /* ---- drawing ----------------------------------------------------------------------------- */

    paint() {
        if (!this.isOpen || !window.Dygraph)
            return;
        const numbers = this.curves.flatMap((curve) => curve.rows().map((row) => row.step));
        const steps = [...new Set(numbers)].sort((a, b) => a - b);
        const isOne = this.curves.length === 1;
        const hasValues = ({ curve, key }) => curve.rows().some((row) => finite(row[key]) !== null);

        this.fill(this.loss, steps, this.lossColumns(isOne).filter((one) => !one.isSparse ||
            hasValues(one)));
        for (const { chart, keys } of this.small) {
            const used = this.curves.flatMap((curve) => keys.map(([key, name], i) => ({
                curve, key, isSparse: i > 0, weight: i === 0 ? this.weight : 0,
                name: isOne ? name : keys.length > 1 ? `${curve.job.name}, ${name}` :
                    curve.job.name,
                token: i > 0 && isOne ? 'series-2' : curve.token,
            }))).filter(hasValues);
            chart.element.hidden = used.length === 0;
            if (used.length)
                this.fill(chart, steps, used);
        }
        this.smallElement.dataset.count = this.small.filter(({ chart }) =>
            !chart.element.hidden).length;
    }

    lossColumns(isOne) {
        return this.curves.flatMap((curve) => {
            const { token } = curve;
            const name = (kind) => (isOne ? kind : `${curve.job.name}, ${kind}`);
            const raw = { curve, key: 'train_loss', name: name('training, as it is'), token,
                isFaint: true };
            return [...(this.weight > 0 ? [raw] : []),
                    { curve, key: 'train_loss', name: name('training'), token,
                        weight: this.weight },
                    { curve, key: 'full_valid_loss', name: name('validation'),
                        token: isOne ? 'series-2' : token,
                      isSparse: true }];
        });
    }

    fill(chart, steps, columns) {
        const rows = steps.map((step) => [step]);
        const at = new Map(steps.map((step, i) => [step, i]));
        columns.forEach((column, c) => {
            const own = column.curve.rows();
            const values = smooth(own.map((row) => finite(row[column.key])), column.weight || 0);
            rows.forEach((row) => row.push(null));
            own.forEach((row, i) => { rows[at.get(row.step)][c + 1] = values[i]; });
        });
        chart.set(columns, rows);
    }

    close() {
        this.isOpen = false;
        clearTimeout(this.looking);
        this.draw.stop();
        this.group.close();
    }
}
