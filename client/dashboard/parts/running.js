/*
 * running: the jobs that train now or are paused, each with its progress, time left and small
 * curve.
 */
import * as api from '../api.js';
import * as session from '../session.js';
import { act, badge, confirm, emptyLine, progress, setProgress, showBadge } from './controls.js';
import { el, icon, Keyed, text } from './dom.js';
import * as format from './format.js';
import { announce } from './page.js';
import { readSeries } from './series.js';
import { Spark } from './spark.js';

const SPARK_POINTS = 200;

function stat(name) {
    const value = el('dd', { class: 'num' }, '–');
    return { value, element: el('div', { class: 'stat' }, el('dt', {}, name), value) };
}

/* What the buttons of a job do; also on the job's own page. */
export const actions = {
    pause: (job) => api.post(api.jobPath(job.id, 'pause')),
    resume: (job) => api.post(api.jobPath(job.id, 'resume')),
    async cancel(job) {
        const sure = await confirm(`Cancel ${job.name}?`,
            'It ends for good. Its checkpoints stay and can be downloaded.', 'Cancel the job');
        return sure ? api.post(api.jobPath(job.id, 'cancel')) : null;
    },
};
export const done = { pause: 'is paused', resume: 'goes on', cancel: 'is cancelled' };

export class Running {
    constructor() {
        this.list = el('ul', { class: 'running-list' });
        this.none = el('div', { hidden: true }, emptyLine('Nothing is training.',
            'A job starts as soon as a device is free for it.'));
        this.count = el('span', { class: 'count' });
        this.element = el('section', { class: 'section', 'aria-labelledby': 'running' },
            el('div', { class: 'section-head' }, el('h2', { id: 'running' }, 'Running',
                this.count)),
            this.list, this.none);
        this.list.append(el('li', { class: 'skeleton running-skeleton' }));
        this.parts = new Map();
        this.cards = new Keyed(this.list, (job) => this.make(job), (e, job) => this.update(job),
            (e, id) => this.drop(id));
        this.isFirst = true;
    }

    show(jobs) {
        if (this.isFirst)
            this.list.replaceChildren();
        this.isFirst = false;
        jobs.sort((a, b) => (a.status === b.status ? a.started_at - b.started_at :
            a.status === 'running' ? -1 : 1));
        this.cards.show(jobs);
        this.none.hidden = jobs.length > 0;
        text(this.count, jobs.length || '');
    }

    make(job) {
        const parts = {
            job, badge: badge(job.status), bar: progress(`Progress of ${job.name}`),
            spark: new Spark('Training loss'),
            steps: el('span', { class: 'num' }), left: el('span', { class: 'num' }),
            place: el('span', { class: 'muted' }),
            loss: stat('Training loss'), rate: stat('Tokens/s'), epoch: stat('Epoch'),
                error: el('div', {}),
        };
        this.parts.set(job.id, parts);
        const button = (name, words, picture) => {
            const element = el('button', { class: 'button button-quiet button-icon changes',
                type: 'button',
                                           'aria-label': `${words} ${job.name}`, title: words },
                                               icon(picture));
            element.addEventListener('click', () => act(element, parts.error, async () => {
                if (await actions[name](parts.job))
                    announce(`${job.name} ${done[name]}`);
            }));
            return element;
        };
        parts.pause = button('pause', 'Pause', 'pause');
        parts.resume = button('resume', 'Resume', 'play');
        parts.cancel = button('cancel', 'Cancel', 'stop');
        this.readCurve(job, parts.spark);
        return el('li', { class: 'card running' },
            el('div', { class: 'running-head' },
                el('div', { class: 'running-title' },
                    el('h3', { class: 'cut' },
                        el('a', { href: `#/jobs/${job.id}`, title: job.name }, job.name)),
                    el('p', { class: 'small cut' }, parts.place)),
                el('div', { class: 'row running-actions' }, parts.badge, parts.pause, parts.resume,
                    parts.cancel)),
            parts.spark.element,
            el('dl', { class: 'stats' }, parts.loss.element, parts.rate.element,
                parts.epoch.element),
            el('div', { class: 'running-progress' }, parts.bar,
                el('div', { class: 'spread small' }, parts.steps, parts.left)),
            parts.error);
    }

    async readCurve(job, spark) {
        const series = await readSeries(job.id, { points: SPARK_POINTS }).catch(() => null);
        const known = series ? series.rows.filter((row) => Number.isFinite(row.train_loss)) : [];
        spark.set(known.map((row) => [row.step, row.train_loss]));
    }

    update(job) {
        const parts = this.parts.get(job.id);
        parts.job = job;
        showBadge(parts.badge, job.status);
        const isOurs = session.mayChange(job);
        parts.pause.hidden = !isOurs || job.status === 'paused';
        parts.resume.hidden = !isOurs || job.status !== 'paused';
        parts.cancel.hidden = !isOurs;
        text(parts.place, [job.model, job.device_used].filter(Boolean).join(' on '));
        if (job.train_loss !== null && !parts.isLive)
            text(parts.loss.value, format.loss(job.train_loss));
        this.showSteps(parts, Math.max(job.completed_steps, parts.step || 0), job.total_steps);
        this.showLeft(parts);
    }

    showSteps(parts, step, total) {
        const perEpoch = parts.job.plan && parts.job.plan.steps_per_epoch;
        parts.step = step;
        setProgress(parts.bar, total ? step / total : 0);
        text(parts.steps, total ? `Step ${format.count(step)} of ${format.count(total)}` :
            'Getting ready');
        if (perEpoch) {
            const epochs = parts.job.hyperparameters.n_epochs;
            text(parts.epoch.value,
                `${Math.min(epochs, Math.max(1, Math.ceil(step / perEpoch)))} of ${epochs}`);
        }
    }

    showLeft(parts) {
        const { job } = parts;
        const left = job.estimated_finish ? job.estimated_finish - Date.now() / 1000 : null;
        text(parts.left, job.status === 'paused' ? 'Paused' : left === null ? '' :
            left < 1 ? 'Nearly done' : `${format.duration(left)} left`);
    }

    addMetrics(event) {
        const parts = this.parts.get(event.fine_tuning_job_id);
        const { data } = event;
        if (!parts || !data)
            return;
        parts.isLive = true;
        parts.spark.add(data.step, data.train_loss);
        text(parts.loss.value, format.loss(data.train_loss));
        text(parts.rate.value, format.count(data.tokens_per_second));
        this.showSteps(parts, data.step, data.total_steps);
        this.showLeft(parts);
    }

    drop(id) {
        this.parts.get(id).spark.close();
        this.parts.delete(id);
    }

    close() {
        for (const parts of this.parts.values())
            parts.spark.close();
    }
}
