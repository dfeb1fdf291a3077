/*
 * queue: the jobs that wait, in their order, which can be changed by dragging and by buttons.
 *
 * Dragging works on pointers, so a finger does it too; Escape puts the row back. A row is moved on
 * the screen first; what the daemon then says holds.
 */
import * as api from '../api.js';
import * as session from '../session.js';
import { act, badge, confirm, emptyLine, errorNotice, showBadge } from './controls.js';
import { el, icon, Keyed, text } from './dom.js';
import * as format from './format.js';
import { announce } from './page.js';

const EDGE_PX = 60; /* near the window's edge it scrolls */

export class Queue {
    constructor(refresh) {
        this.refresh = refresh;
        this.list = el('ol', { class: 'queue card card-flush' });
        this.none = el('div', { hidden: true }, emptyLine('Nobody waits.',
            'New jobs line up here.'));
        this.count = el('span', { class: 'count' });
        this.error = el('div', {});
        this.help = el('p', { class: 'faint small queue-help changes', hidden: true },
            'Drag to reorder, or use the arrows');
        this.element = el('section', { class: 'section', 'aria-labelledby': 'queue' },
            el('div', { class: 'section-head' }, el('h2', { id: 'queue' }, 'Queue', this.count),
                this.help),
            this.error, this.list, this.none);
        this.list.append(el('li', { class: 'skeleton queue-skeleton' }));
        this.parts = new Map();
        this.rows = new Keyed(this.list, (job) => this.make(job), (e, job) => this.update(job),
            (e, id) => this.parts.delete(id));
        this.jobs = null;
        this.drag = null;
    }

    show(jobs) {
        if (!this.jobs)
            this.list.replaceChildren();
        this.jobs = jobs.sort((a, b) => a.queue_position - b.queue_position);
        if (!this.drag)
            this.draw();
    }

    draw() {
        this.rows.show(this.jobs);
        this.list.hidden = this.jobs.length === 0;
        this.none.hidden = this.jobs.length > 0;
        this.help.hidden = this.jobs.length < 2 || !this.jobs.some(session.mayChange);
        text(this.count, this.jobs.length || '');
    }

    make(job) {
        const parts = { place: el('span', { class: 'queue-place num' }), badge: badge(job.status),
                        about: el('p', { class: 'small muted cut' }),
                        when: el('span', { class: 'small num muted queue-when' }) };
        const move = (words, picture, target) => {
            const button = el('button', { class: 'button button-quiet button-icon button-small',
                type: 'button',
                                          'aria-label': `${words} ${job.name}`, title: words },
                                              icon(picture));
            button.addEventListener('click', () => this.moveBy(job.id, target, button));
            return button;
        };
        parts.grip = el('span', { class: 'grip', title: 'Drag to reorder', 'aria-hidden': 'true' },
            icon('grip'));
        parts.up = move('Move up', 'up', -1);
        parts.down = move('Move down', 'down', 1);
        const cancel = el('button', { class: 'button button-quiet button-icon button-small',
            type: 'button',
                                      'aria-label': `Cancel ${job.name}`, title: 'Cancel' },
                                          icon('stop'));
        cancel.addEventListener('click', () => act(cancel, this.error, () => this.cancel(job)));
        parts.row = el('li', { class: 'queue-row', 'data-job': job.id }, parts.grip, parts.place,
            el('div', { class: 'queue-what' },
                el('p', { class: 'cut' },
                    el('a', { class: 'queue-name', href: `#/jobs/${job.id}`, title: job.name },
                        job.name)),
                parts.about),
            parts.when, parts.badge, el('div', { class: 'queue-actions changes' }, parts.up,
                parts.down, cancel));
        parts.grip.addEventListener('pointerdown', (event) => this.startDrag(event, job.id));
        this.parts.set(job.id, parts);
        return parts.row;
    }

    update(job) {
        const parts = this.parts.get(job.id);
        const at = this.jobs.indexOf(job);
        text(parts.place, job.queue_position);
        showBadge(parts.badge, job.status);
        text(parts.about, job.status_reason || [job.model,
            job.device === 'auto' ? null : `for ${job.device}`,
            job.priority ? `priority ${job.priority}` : null].filter(Boolean).join(' · '));
        parts.about.title = parts.about.textContent;
        const wait = job.estimated_start ? job.estimated_start - Date.now() / 1000 : null;
        text(parts.when, wait === null ? '' : wait < 5 ? 'starts soon' :
            `starts in ${format.duration(wait)}`);
        /* its places stay, empty */
        parts.row.classList.toggle('is-fixed', !session.mayChange(job));
        parts.up.setAttribute('aria-disabled', String(at === 0));
        parts.down.setAttribute('aria-disabled', String(at === this.jobs.length - 1));
    }

    async cancel(job) {
        if (await confirm(`Cancel ${job.name}?`, 'It has not begun; it leaves the queue.',
            'Cancel the job')) {
            await api.post(api.jobPath(job.id, 'cancel'));
            announce(`${job.name} is cancelled`);
            await this.refresh();
        }
    }

    /* ---- moving ------------------------------------------------------------------------------ */

    moveBy(id, by, button) {
        const at = this.jobs.findIndex((job) => job.id === id);
        const to = at + by;
        if (at < 0 || to < 0 || to >= this.jobs.length ||
            button.getAttribute('aria-disabled') === 'true') {
            announce(by < 0 ? 'It is the first' : 'It is the last');
            return;
        }
        this.moveTo(id, to);
    }

    /* Shown at once, then sent. */
    async moveTo(id, index) {
        const at = this.jobs.findIndex((job) => job.id === id);
        const places = this.jobs.map((job) => job.queue_position);
        const [job] = this.jobs.splice(at, 1);
        this.jobs.splice(index, 0, job);
        this.jobs.forEach((one, i) => { one.queue_position = places[i]; });
        this.draw();
        this.error.replaceChildren();
        try {
            await api.post(api.jobPath(id, 'move'), { position: places[index] });
            announce(`${job.name} is now number ${index + 1} of ${this.jobs.length}`);
        } catch (error) {
            this.error.replaceChildren(errorNotice(error));
        }
        await this.refresh();
    }

    startDrag(event, id) {
        const { row } = this.parts.get(id);
        if (event.button !== 0 || this.drag || this.jobs.length < 2)
            return;
        event.preventDefault();
        const rows = [...this.list.children];
        this.drag = { id, row, rows, from: rows.indexOf(row), to: rows.indexOf(row), y: event.pageY,
                      middles: rows.map((one) => {
                          const box = one.getBoundingClientRect();
                          return window.scrollY + box.top + box.height / 2;
                      }), height: row.getBoundingClientRect().height };
        row.classList.add('is-dragged');
        this.list.classList.add('is-dragging');
        const { grip } = this.parts.get(id);
        grip.setPointerCapture(event.pointerId);
        grip.onpointermove = (e) => this.dragTo(e);
        grip.onpointerup = () => this.endDrag(grip, true);
        grip.onpointercancel = () => this.endDrag(grip, false);
        this.onKey = (e) => {
            if (e.key === 'Escape')
                this.endDrag(grip, false);
        };
        document.addEventListener('keydown', this.onKey);
    }

    dragTo(event) {
        const { drag } = this;
        if (!drag)
            return;
        const moved = event.pageY - drag.y;
        const middle = drag.middles[drag.from] + moved;
        drag.to = drag.middles.filter((y, i) => i !== drag.from && y < middle +
            Math.sign(i - drag.from)).length;
        drag.row.style.transform = `translateY(${moved}px)`;
        drag.rows.forEach((row, i) => {
            if (i === drag.from)
                return;
            const shift = i > drag.from && i <= drag.to ? -1 : i < drag.from &&
                i >= drag.to ? 1 : 0;
            row.style.transform = shift ? `translateY(${shift * drag.height}px)` : '';
        });
        if (event.clientY < EDGE_PX + 56)
            window.scrollBy(0, -8);
        else if (event.clientY > window.innerHeight - EDGE_PX)
            window.scrollBy(0, 8);
    }

    endDrag(grip, isDropped) {
        const { drag } = this;
        if (!drag)
            return;
        this.drag = null;
        grip.onpointermove = grip.onpointerup = grip.onpointercancel = null;
        document.removeEventListener('keydown', this.onKey);
        this.list.classList.remove('is-dragging');
        drag.row.classList.remove('is-dragged');
        drag.rows.forEach((row) => { row.style.transform = ''; });
        if (isDropped && drag.to !== drag.from && this.jobs.some((job) => job.id === drag.id))
            this.moveTo(drag.id, drag.to);
        else
            this.draw();
    }
}
