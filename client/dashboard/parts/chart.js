/*
 * chart: curves over steps by dygraphs, in our colours, with what the pointer is at in words.
 *
 * Charts of a group share the range that is shown and the step that is pointed at. dygraphs' own
 * legend writes style attributes, which the page's policy forbids: the legend is ours.
 */
import { el, text } from './dom.js';
import * as format from './format.js';
import { color } from './spark.js';

/* How a key moves the two ends of what is shown, in parts of it. */
const KEYS = { '+': [0.25, -0.25], '=': [0.25, -0.25], '-': [-0.5, 0.5],
               ArrowLeft: [-0.2, -0.2], ArrowRight: [0.2, 0.2] };

let loading = null;

/* dygraphs is taken when the first chart is shown: the other pages do not need it. */
export function load() {
    if (!loading) {
        loading = new Promise((resolve, reject) => {
            const script = el('script', { src: new URL('../dygraphs.js', import.meta.url).href });
            script.addEventListener('load', () => {
                const { Dygraph } = window;
                Dygraph.PLUGINS = Dygraph.PLUGINS.filter((plugin) =>
                    plugin !== Dygraph.Plugins.Legend);
                resolve();
            });
            script.addEventListener('error',
                () => reject(new Error('The charts could not be loaded')));
            document.head.append(script,
                el('link',
                    { rel: 'stylesheet', href: new URL('../dygraphs.css', import.meta.url).href }));
        });
    }
    return loading;
}

const faint = (rgb) => rgb.replace(/^rgb\((.*)\)$/, 'rgba($1, 0.28)');

/* series: {key, name, token, isFaint, isSparse}; format turns a value into words. */
export class Chart {
    constructor(title, { height, words = format.number, axisWords = words, group }) {
        this.title = title;
        this.words = words;
        this.axisWords = axisWords;
        this.group = group;
        this.series = [];
        this.rows = [];
        this.place = el('div', { class: 'chart-place', tabindex: 0, role: 'group' });
        this.place.style.height = `${height}px`;
        this.legend = el('ul', { class: 'legend' });
        this.none = el('p', { class: 'chart-none faint', hidden: true }, 'No values yet');
        this.element = el('figure', { class: 'chart card' },
            el('figcaption', { class: 'chart-head' }, el('h3', {}, title), this.legend),
            el('div', { class: 'chart-frame' }, this.place, this.none));
        this.place.addEventListener('keydown', (event) => this.onKey(event));
        this.element.chart = this; /* for who looks from outside */
        this.sizes = new ResizeObserver(() => this.resize());
        this.sizes.observe(this.place);
        group.add(this);
    }

    /* rows: [step, value of each series…], sorted; null: none. */
    set(series, rows) {
        const isSame = this.series.length === series.length &&
            this.series.every((one, i) => one.key === series[i].key && one.name === series[i].name);
        this.series = series;
        this.rows = rows;
        const hasAny = rows.some((row) => row.slice(1).some((value) => value !== null));
        this.none.hidden = hasAny;
        this.place.classList.toggle('is-empty', !hasAny);
        if (!hasAny)
            return;
        if (this.graph && isSame)
            this.graph.updateOptions({ file: rows });
        else
            this.make();
        this.showValues(rows.length - 1);
    }

    make() {
        this.unmake();
        if (!this.place.clientWidth)
            return; /* not laid out yet: resize makes it */
        const range = this.group.range;
        this.graph = new window.Dygraph(this.place, this.rows, {
            ...this.options(), dateWindow: range,
            drawCallback: (graph, isInitial) => this.onDraw(graph, isInitial),
            highlightCallback: (event, x, points, row) => this.group.point(row),
            unhighlightCallback: () => this.group.point(null),
            zoomCallback: () => this.group.zoom(this.graph.isZoomed('x') ? this.graph.xAxisRange() :
                null),
        });
        this.makeLegend();
    }

    options() {
        const ink = this.series.map(({ token, isFaint }) => (isFaint ? faint(color(token)) :
            color(token)));
        const sparse = {};
        this.series.forEach((one, i) => {
            if (one.isSparse)
                sparse[`s${i}`] = { drawPoints: true, pointSize: 3, strokeWidth: 2,
                    connectSeparatedPoints: true };
            else
                sparse[`s${i}`] = { strokeWidth: one.isFaint ? 1 : 1.75,
                    connectSeparatedPoints: true };
        });
        return {
            labels: ['step', ...this.series.map((one, i) => `s${i}`)], colors: ink, series: sparse,
            legend: 'never', labelsKMB: false, logscale: this.isLog === true, fillGraph: false,
            gridLineColor: color('line'), axisLineColor: color('line'), gridLineWidth: 1,
                highlightCircleSize: 3,
            xRangePad: 4, yRangePad: 6, animatedZooms: false, digitsAfterDecimal: 4,
            axes: {
                x: { axisLabelFormatter: (x) => (Number.isInteger(x) ? format.count(x) : ''),
                    axisLabelWidth: 64,
                     axisTickSize: 4, drawGrid: false },
                y: { axisLabelFormatter: (y) => this.axisWords(y), axisLabelWidth: 58,
                    axisTickSize: 2,
                     pixelsPerLabel: 34 },
            },
        };
    }

    resize() {
        if (this.graph && this.place.clientWidth && this.place.clientWidth !== this.graph.width_)
            this.graph.resize();
        else if (!this.graph && this.place.clientWidth && this.rows.length)
            this.make();
    }

    setLog(isLog) {
        this.isLog = isLog;
        if (this.graph)
            this.graph.updateOptions({ logscale: isLog });
    }

    recolor() {
        if (this.graph) {
            const { colors, gridLineColor, axisLineColor } = this.options();
            this.graph.updateOptions({ colors, gridLineColor, axisLineColor });
            this.makeLegend();
        }
    }

    onDraw(graph, isInitial) {
        const [low, high] = graph.xAxisRange();
        const last = this.rows.length - 1;
        if (isInitial || last < 0)
            return;
        this.place.setAttribute('aria-label',
            `${this.title}, steps ${format.count(Math.max(0, low))} to ` +
            `${format.count(high)}: ${this.sentence(last)}. ` +
            'Plus and minus zoom, arrows move, 0 shows all.');
    }

    sentence(row) {
        return this.series.map((one, i) => (one.isFaint ? '' :
            `${one.name} ${this.words(this.newest(i, row))}`))
            .filter(Boolean).join(', ');
    }

    /* The value at a row, or the last before it. */
    newest(index, row) {
        for (let i = row; i >= 0; i--) {
            const value = this.rows[i][index + 1];
            if (value !== null && !Number.isNaN(value))
                return value;
        }
        return null;
    }

    makeLegend() {
        this.values = [];
        this.legend.replaceChildren(...this.series.map((one, i) => {
            const value = el('span', { class: 'num legend-value' });
            this.values.push(value);
            const key = el('span', { class: 'legend-key', 'data-sparse': one.isSparse || null });
            key.style.setProperty('--key', color(one.token));
            const isAlone = this.series.length === 1;
            return one.isFaint ? '' : el('li', {}, isAlone ? null : [key,
                el('span', { class: 'cut legend-name', title: one.name }, one.name)], value);
        }));
        this.showValues(this.rows.length - 1);
    }

    showValues(row) {
        if (this.values && row >= 0)
            this.values.forEach((value, i) => text(value, this.words(this.newest(i, row))));
    }

    point(row) {
        if (!this.graph)
            return;
        if (row === null) {
            this.graph.clearSelection();
            this.showValues(this.rows.length - 1);
        } else if (row < this.rows.length) {
            this.graph.setSelection(row);
            this.showValues(row);
        }
    }

    zoom(range) {
        if (this.graph)
            this.graph.updateOptions({ dateWindow: range });
    }

    onKey(event) {
        const change = KEYS[event.key];
        if (event.key === '0') {
            this.group.zoom(null);
        } else if (change && this.graph && !event.ctrlKey && !event.metaKey) {
            const [low, high] = this.graph.xAxisRange();
            const [first, last] = this.graph.xAxisExtremes();
            const size = high - low;
            const next = [Math.max(first, low + change[0] * size),
                Math.min(last, high + change[1] * size)];
            if (next[1] - next[0] >= 2)
                this.group.zoom(next[0] <= first && next[1] >= last ? null : next);
        } else {
            return;
        }
        event.preventDefault();
    }

    close() {
        this.sizes.disconnect();
        this.unmake();
    }

    unmake() {
        if (this.graph)
            this.graph.destroy();
        this.graph = null;
    }
}

/* Charts that are looked at together. */
export class Group {
    constructor(onZoom = () => {}) {
        this.charts = [];
        this.range = null;
        this.onZoom = onZoom;
        this.isPointing = false;
        this.recolor = () => this.charts.forEach((chart) => chart.recolor());
        window.addEventListener('needled:theme', this.recolor);
    }

    add(chart) {
        this.charts.push(chart);
    }

    zoom(range) {
        this.range = range;
        this.charts.forEach((chart) => chart.zoom(range));
        this.onZoom(range);
    }

    point(row) {
        if (this.isPointing)
            return;
        this.isPointing = true; /* a selection tells of itself */
        this.charts.forEach((chart) => chart.point(row));
        this.isPointing = false;
    }

    close() {
        window.removeEventListener('needled:theme', this.recolor);
        this.charts.forEach((chart) => chart.close());
    }
}
