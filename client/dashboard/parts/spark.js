/*
 * spark: a small live curve of losses, with its newest value as its text.
 */
import { el } from './dom.js';
import * as format from './format.js';

const POINTS_MAX = 400;

/* A token's colour as the theme has it now. */
export function color(token) {
    const probe = document.createElement('i');
    probe.style.color = `var(--${token})`;
    probe.hidden = true;
    document.body.append(probe);
    const value = getComputedStyle(probe).color;
    probe.remove();
    return value;
}

/* Half of the points are enough once there are too many: the mean of each two. */
function thin(points) {
    const thinned = [];
    for (let i = 0; i + 1 < points.length; i += 2)
        thinned.push([(points[i][0] + points[i + 1][0]) / 2,
            (points[i][1] + points[i + 1][1]) / 2]);
    if (points.length % 2)
        thinned.push(points[points.length - 1]);
    return thinned;
}

/* A loss falls fast at first: what lies above the 98th part of a hundred is cut, so that the rest
 * shows. */
function bounds(points) {
    const values = points.map(([, y]) => y).sort((a, b) => a - b);
    const low = values[0];
    const high = values[Math.min(values.length - 1, Math.ceil(values.length * 0.98))];
    return high > low ? [low, high] : [low - 0.5, low + 0.5];
}

export class Spark {
    constructor(label) {
        this.label = label;
        this.points = [];
        this.canvas = el('canvas', { class: 'spark', role: 'img' });
        this.element = this.canvas;
        this.drawing = 0;
        this.redraw = () => this.draw();
        this.watching = new ResizeObserver(this.redraw);
        this.watching.observe(this.canvas);
        window.addEventListener('needled:theme', this.redraw);
        this.name();
    }

    set(points) {
        const last = points.length ? points[points.length - 1][0] : 0;
        this.points = points.concat(this.points.filter(([step]) => step > last));
        this.draw();
    }

    add(step, value) {
        const last = this.points[this.points.length - 1];
        if (!Number.isFinite(value) || (last && step <= last[0]))
            return;
        this.points.push([step, value]);
        if (this.points.length > POINTS_MAX)
            this.points = thin(this.points);
        this.draw();
    }

    name() {
        const last = this.points[this.points.length - 1];
        this.canvas.setAttribute('aria-label', last ?
            `${this.label}: ${format.loss(last[1])} at step ${Math.round(last[0])}` :
                `${this.label}: none yet`);
    }

    draw() {
        if (!this.drawing)
            this.drawing = requestAnimationFrame(() => { this.drawing = 0; this.paint(); });
    }

    paint() {
        const { canvas, points } = this;
        const width = canvas.clientWidth;
        const height = canvas.clientHeight;
        const scale = window.devicePixelRatio || 1;
        if (!width || !height)
            return;
        if (canvas.width !== Math.round(width * scale) ||
            canvas.height !== Math.round(height * scale)) {
            canvas.width = Math.round(width * scale);
            canvas.height = Math.round(height * scale);
        }
        const pen = canvas.getContext('2d');
        pen.setTransform(scale, 0, 0, scale, 0, 0);
        pen.clearRect(0, 0, width, height);
        this.name();
        if (points.length > 1)
            this.trace(pen, width, height);
    }

    trace(pen, width, height) {
        const { points } = this;
        const [low, high] = bounds(points);
        const first = points[0][0];
        const end = points[points.length - 1][0];
        const x = (step) => 2 + (width - 6) * (step - first) / Math.max(1, end - first);
        const y = (value) => height - 4 - (height - 8) * (Math.min(value,
            high) - low) / (high - low);
        const ink = color('series-1');

        pen.strokeStyle = color('line');
        pen.lineWidth = 1;
        pen.beginPath();
        pen.moveTo(0, height - 0.5);
        pen.lineTo(width, height - 0.5);
        pen.stroke();
        pen.beginPath();
        points.forEach(([step, value], i) => (i ? pen.lineTo(x(step), y(value)) :
            pen.moveTo(x(step), y(value))));
        pen.strokeStyle = ink;
        pen.lineWidth = 1.75;
        pen.lineJoin = 'round';
        pen.stroke();
        const [step, value] = points[points.length - 1];
        pen.lineTo(x(step), height);
        pen.lineTo(x(first), height);
        pen.globalAlpha = 0.1;
        pen.fillStyle = ink;
        pen.fill();
        pen.globalAlpha = 1;
        pen.beginPath();
        pen.arc(x(step), y(value), 3, 0, 7);
        pen.fill();
    }

    close() {
        this.watching.disconnect();
        cancelAnimationFrame(this.drawing);
        window.removeEventListener('needled:theme', this.redraw);
    }
}
