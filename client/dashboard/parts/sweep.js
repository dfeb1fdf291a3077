/*
 * sweep: the jobs that were made together with this one, side by side.
 */
import * as api from '../api.js';
import { badge } from './controls.js';
import { el } from './dom.js';
import * as format from './format.js';

const value = (x) => (typeof x === 'number' ? format.number(x) : x === undefined ? '–' : x);

export class Sweep {
    constructor(id) {
        this.id = id;
        this.body = el('div', { class: 'card card-flush' });
        this.element = el('section', { class: 'section', 'aria-labelledby': 'sweep', hidden: true },
            el('div', { class: 'section-head' }, el('h2', { id: 'sweep' }, 'Sweep')), this.body);
    }

    async read(job) {
        const key = `${job.status} ${job.completed_steps}`;
        if (!job.sweep_id || key === this.key)
            return;
        this.key = key;
        const sweep = await api.get(`/v1/fine_tuning/sweeps/${api.part(job.sweep_id)}`);
        const names = Object.keys(sweep.varied);
        this.body.replaceChildren(el('div', { class: 'table-scroll checkpoints-scroll', tabindex: 0,
            role: 'region',
                                              'aria-label': 'Table of the sweep' },
                                                  el('table', { class: 'table' },
            el('thead', {}, el('tr', {}, el('th', { scope: 'col' }, 'Job'),
                names.map((name) => el('th', { scope: 'col', class: 'num' },
                    name.replaceAll('_', ' '))),
                ['Steps', 'Training loss', 'Validation loss'].map((name) =>
                    el('th', { scope: 'col', class: 'num' }, name)),
                el('th', { scope: 'col' }, 'State'))),
            el('tbody', {}, sweep.jobs.map((one) => this.row(one, names))))));
        this.element.hidden = false;
    }

    row(one, names) {
        const isThis = one.id === this.id;
        return el('tr', { class: isThis ? 'is-this' : null },
            el('td', {}, isThis ? el('strong', {}, 'This job') :
                el('a', { href: `#/jobs/${one.id}` }, `…${one.id.slice(-8)}`),
                one.best ? [' ', el('span', { class: 'tag tag-good' }, 'best')] : null),
            names.map((name) => el('td', { class: 'num' }, value(one.values[name]))),
            el('td', { class: 'num' }, format.count(one.completed_steps)),
            el('td', { class: 'num' }, format.loss(one.train_loss)),
            el('td', { class: 'num' }, format.loss(one.full_valid_loss)),
            el('td', {}, badge(one.status)));
    }
}
