/*
 * series: a job's curves, thinned by the daemon to what can be drawn.
 */
import * as api from '../api.js';

/* A row a step: {step, train_loss, …, full_valid_loss, …}; null where there is none. isThin: steps
 * were left out. */
export async function readSeries(id, { points, first, last }) {
    const answer = await api.get(`${api.jobPath(id, 'metrics')}?points=${points}` +
        (first ? `&first_step=${first}` : '') + (last ? `&last_step=${last}` : ''));
    const rows = new Map();
    for (const columns of [answer.columns, answer.validation]) {
        const names = Object.keys(columns).filter((name) => name !== 'step');
        columns.step.forEach((step, i) => {
            const row = rows.get(step) || { step };
            for (const name of names)
                row[name] = columns[name][i];
            rows.set(step, row);
        });
    }
    return { rows: [...rows.values()].sort((a, b) => a.step - b.step),
             isThin: answer.step_count > answer.point_count };
}
