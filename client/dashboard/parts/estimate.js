/*
 * estimate: what the job of the form would take, asked for again when the form changes.
 */
import * as api from '../api.js';
import { errorNotice } from './controls.js';
import { el, text } from './dom.js';
import * as format from './format.js';

const rows = [['steps', 'Steps'], ['examples', 'Examples'], ['tokens', 'Tokens'], ['time', 'Time'],
    ['memory', 'Memory'], ['device', 'Device']];

export class Estimate {
    constructor() {
        this.values = new Map(rows.map(([name]) => [name, el('dd', { class: 'num' }, '–')]));
        this.note = el('p', { class: 'small muted estimate-note' });
        this.place = el('div', {});
        this.element = el('div', { class: 'stack', 'aria-live': 'polite' },
            el('dl', { class: 'facts estimate' },
                rows.map(([name, label]) => [el('dt', {}, label), this.values.get(name)])),
                    this.note, this.place);
        this.asked = null;
    }

    clear(words = '') {
        if (this.asked)
            this.asked.abort();
        this.asked = null;
        this.values.forEach((value) => text(value, '–'));
        text(this.note, words);
        this.place.replaceChildren();
    }

    /* The estimate, or null: a later question came, or it was refused (refused(error) says whether
     * it was told). */
    async ask(body, jobs, refused) {
        if (this.asked)
            this.asked.abort();
        const mine = new AbortController();
        this.asked = mine;
        this.element.setAttribute('aria-busy', 'true');
        try {
            const answer = await api.post('/v1/fine_tuning/estimate', body,
                { signal: mine.signal });
            this.draw(answer, jobs);
            return answer;
        } catch (error) {
            if (error.name !== 'AbortError' && error.status !== 401) {
                this.clear();
                if (!refused(error))
                    this.place.replaceChildren(errorNotice(error));
            }
            return null;
        } finally {
            if (this.asked === mine || this.asked === null)
                this.element.removeAttribute('aria-busy');
        }
    }

    draw(answer, jobs) {
        const needs = answer.plan.memory_needs;
        const set = (name, value) => text(this.values.get(name), value);
        this.place.replaceChildren();
        set('steps',
            `${format.count(answer.total_steps)}, ` +
            `${format.count(answer.steps_per_epoch)} an epoch`);
        set('examples',
            format.count(answer.examples) + (answer.validation_examples ?
                `, ${format.count(answer.validation_examples)} held out` : ''));
        set('tokens',
            `${format.count(answer.tokens)}, ${format.count(answer.trained_tokens)} learned`);
        set('time', answer.training_s === null ? 'not known yet' :
            answer.training_s < 1 ? format.duration(answer.training_s) :
                `about ${format.duration(answer.training_s)}`);
        set('memory', needs ? format.bytes(needs.wanted_bytes) : '–');
        set('device', answer.device || 'none now');
        text(this.note,
            [jobs > 1 ? `The first of ${format.count(jobs)} jobs; the others differ.` : null,
            answer.device_reason, answer.training_s === null ? answer.time_reason :
                null].filter(Boolean).join(' · '));
    }
}
