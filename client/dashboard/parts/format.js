/*
 * format: numbers, sizes and times as people read them.
 */

const NONE = '–';
const grouped = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });

const absent = (x) => x === null || x === undefined || !Number.isFinite(x);

export function count(x) {
    return absent(x) ? NONE : grouped.format(x);
}

/* "1 step", "2 steps" */
export function plural(x, one, many = one + 's') {
    return `${count(x)} ${x === 1 ? one : many}`;
}

/* Four significant digits at most: 2.927, 0.0003, 1.2e-7 */
export function number(x) {
    if (absent(x))
        return NONE;
    const size = Math.abs(x);
    if (size !== 0 && (size < 0.0001 || size >= 1e6))
        return x.toExponential(2).replace(/\.?0+e/, 'e');
    if (size >= 1000)
        return grouped.format(x);
    return String(Number(x.toPrecision(4)));
}

/* A fixed number of digits, so that a live number does not dance. */
export function loss(x) {
    if (absent(x))
        return NONE;
    return Math.abs(x) >= 1000 ? x.toExponential(2) : x.toFixed(Math.abs(x) < 0.1 ? 5 : 4);
}

export function percent(x, digits = 0) {
    return absent(x) ? NONE : `${(x * 100).toFixed(digits)} %`;
}

export function bytes(x) {
    const units = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'];
    let i = 0;
    if (absent(x))
        return NONE;
    while (x >= 1000 && i < units.length - 1) {
        x /= 1000;
        i++;
    }
    return `${i === 0 || x >= 100 ? Math.round(x) : x.toFixed(1)} ${units[i]}`;
}

export function duration(s) {
    if (absent(s) || s < 0)
        return NONE;
    if (s < 1)
        return 'under 1 s';
    s = s >= 600 ? Math.round(s / 60) * 60 : Math.round(s); /* ten minutes need no seconds */
    const parts = [[Math.floor(s / 86400), 'd'], [Math.floor(s / 3600) % 24, 'h'],
                   [Math.floor(s / 60) % 60, 'min'], [s % 60, 's']];
    const first = parts.findIndex(([n]) => n > 0);
    return parts.slice(first, first + 2).filter(([n]) => n > 0)
        .map(([n, unit]) => `${n} ${unit}`).join(' ');
}

export function ago(unix, now = Date.now() / 1000) {
    if (absent(unix))
        return NONE;
    const s = now - unix;
    if (s < 10)
        return 'just now';
    if (s < 60)
        return `${Math.floor(s / 10) * 10} s ago`;
    if (s < 3600)
        return `${Math.floor(s / 60)} min ago`;
    if (s < 86400)
        return `${Math.floor(s / 3600)} h ago`;
    if (s < 7 * 86400)
        return `${plural(Math.floor(s / 86400), 'day')} ago`;
    return new Date(unix * 1000).toLocaleDateString(undefined, { dateStyle: 'medium' });
}

export function moment(unix) {
    return absent(unix) ? NONE : new Date(unix * 1000).toLocaleString(undefined,
        { dateStyle: 'medium', timeStyle: 'medium' });
}

/* The time, and the day where it is not today. */
export function shortMoment(unix) {
    const day = new Date(unix * 1000);
    return day.toDateString() === new Date().toDateString() ? clock(unix) :
        `${day.toLocaleDateString(undefined, { month: 'short', day: 'numeric' })}, ${clock(unix)}`;
}

export function clock(unix) {
    return absent(unix) ? NONE : new Date(unix * 1000).toLocaleTimeString(undefined,
        { timeStyle: 'medium' });
}

export const stateNames = {
    validating_files: 'Reading files', queued: 'Queued', running: 'Running', paused: 'Paused',
    succeeded: 'Succeeded', failed: 'Failed', cancelled: 'Cancelled',
};
