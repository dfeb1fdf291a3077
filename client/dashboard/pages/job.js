/*
 * job: one job from its queue to its adapter.
 *
 * The record says what holds; events move what is seen in between. After a break everything is read
 * anew, so that a reload or a restart of the daemon leaves no gap.
 */
import * as api from '../api.js';
import * as feed from '../feed.js';
import * as session from '../session.js';
import { act, badge, errorNotice, lineList, notice, progress, setProgress,
    showBadge } from '../parts/controls.js';
import { Curves } from '../parts/curves.js';
import { delay, el, icon, text, throttle } from '../parts/dom.js';
import * as format from '../parts/format.js';
import { adapterPath, Checkpoints, Facts } from '../parts/jobfacts.js';
import { Log } from '../parts/log.js';
import { Sweep } from '../parts/sweep.js';
import { announce, setTitle } from '../parts/page.js';
import { actions, done } from '../parts/running.js';

const REFRESH_MS = 5000;
const PATIENCE_MS = 1500; /* then what is there is shown */
const ENDED = ['succeeded', 'failed', 'cancelled'];
const BEGUN = ['running', 'paused', ...ENDED];

function tile(name) {
    const value = el('dd', { class: 'num' }, '–');
    return { value, element: el('div', { class: 'stat' }, el('dt', {}, name), value) };
}

class Head {
    constructor(page) {
        this.title = el('h1', { class: 'wrap' }, page.id);
        this.badge = badge('queued');
        this.about = el('p', { class: 'muted wrap' }, ' ');
        this.error = el('div', {});
        const action = (name, words, picture, kind = '') => {
            const button = el('button', { class: `button changes ${kind}`, type: 'button',
                hidden: true },
                icon(picture), words);
            button.addEventListener('click', () => act(button, this.error, async () => {
                const job = await actions[name](page.job);
                if (job) {
                    page.showJob(job);
                    announce(`${job.name} ${done[name]}`);
                }
            }));
            return button;
        };
        this.pause = action('pause', 'Pause', 'pause');
        this.resume = action('resume', 'Resume', 'play', 'button-primary');
        this.cancel = action('cancel', 'Cancel', 'stop');
        this.retry = el('a', { class: 'button changes', hidden: true,
            href: `#/new?from=${api.part(page.id)}` },
            icon('retry'), 'Retry with changes');
        this.csv = el('a', { class: 'button', hidden: true, download: true }, icon('download'),
            'Curve (CSV)');
        this.adapter = el('a', { class: 'button button-primary', hidden: true, download: true },
            icon('download'), 'Adapter');
        this.notices = el('div', { class: 'stack' });
        this.element = el('div', { class: 'stack job-head' },
            el('nav', { 'aria-label': 'Where this is' },
                el('a', { class: 'back small', href: '#/' }, icon('left'), 'All jobs')),
            el('div', { class: 'page-head' },
                el('div', { class: 'job-title' }, el('div', { class: 'row' }, this.title,
                    this.badge), this.about),
                el('div', { class: 'row job-actions' },
                    this.pause, this.resume, this.cancel, this.retry, this.csv, this.adapter)),
            this.error, this.notices);
    }

    show(job) {
        const hasEnded = ENDED.includes(job.status);
        const isOurs = session.mayChange(job);
        setTitle(job.name);
        text(this.title, job.name);
        showBadge(this.badge, job.status);
        text(this.about, [job.model, job.device_used ? `on ${job.device_used}` : null,
            job.finished_at ? `ended ${format.ago(job.finished_at)}` :
                `created ${format.ago(job.created_at)}`]
            .filter(Boolean).join(' · '));
        this.pause.hidden = !isOurs || !['queued', 'running'].includes(job.status);
        this.resume.hidden = !isOurs || job.status !== 'paused';
        this.cancel.hidden = !isOurs || hasEnded;
        this.retry.hidden = !hasEnded;
        this.csv.hidden = !job.result_files.length;
        if (job.result_files.length)
            this.csv.href = api.url(`/v1/files/${api.part(job.result_files[0])}/content`);
        this.adapter.hidden = !job.fine_tuned_model;
        if (job.fine_tuned_model)
            this.adapter.href = adapterPath(job.fine_tuned_model);
        this.showNotices(job);
    }

    showNotices(job) {
        const key = JSON.stringify([job.error, job.warnings, job.status_reason]);
        if (key === this.key)
            return; /* said once */
        this.key = key;
        const warnings = (job.warnings || []).filter((one) => !one.line);
        const lines = (job.warnings || []).filter((one) => one.line);
        const hasFiles = job.training_files.length + job.validation_files.length > 1;
        const error = job.error && job.error.message ? notice('error',
            el('p', {}, el('strong', {}, 'It failed. '), job.error.message),
            (job.error.lines || []).length ? lineList(job.error.lines, hasFiles) : null) : null;
        this.notices.replaceChildren(...[error,
            job.status_reason ? notice('info', el('p', {}, job.status_reason)) : null,
            warnings.length || lines.length ? notice('warn',
                warnings.length ? el('ul', { class: 'stack notice-list' }, warnings.map((one) =>
                    el('li', {}, one.reason || one.rule))) : null,
                lines.length ? lineList(lines, hasFiles) : null) : null].filter(Boolean));
        this.notices.hidden = !this.notices.firstChild;
    }
}

class Now {
    constructor() {
        this.bar = progress('Progress');
        this.steps = el('span', { class: 'num' }, ' ');
        this.left = el('span', { class: 'num' }, ' ');
        this.tiles = { train_loss: tile('Training loss'), full_valid_loss: tile('Validation loss'),
                       train_mean_token_accuracy: tile('Token accuracy'),
                           learning_rate: tile('Learning rate'),
                       grad_norm: tile('Gradient norm'), tokens_per_second: tile('Tokens/s') };
        this.words = { train_loss: format.loss, full_valid_loss: format.loss,
            learning_rate: format.number,
                       train_mean_token_accuracy: (x) => format.percent(x, 1),
                       grad_norm: (x) => (Number.isFinite(x) ? x.toFixed(3) : '–'),
                           tokens_per_second: format.count };
        this.step = 0;
        this.element = el('section', { class: 'card stack now', 'aria-label': 'Now' },
            el('div', { class: 'running-progress' }, this.bar,
                el('div', { class: 'spread small' }, this.steps, this.left)),
            el('dl', { class: 'stats stats-wide' },
                Object.values(this.tiles).map(({ element }) => element)));
    }

    show(job) {
        this.job = job;
        this.step = Math.max(this.step, job.completed_steps);
        this.showValues({ train_loss: job.train_loss });
        this.showSteps();
    }

    showValues(data) {
        for (const [key, { value }] of Object.entries(this.tiles)) {
            if (Number.isFinite(data[key]))
                text(value, this.words[key](data[key]));
        }
    }

    add(data) {
        this.step = Math.max(this.step, data.step);
        this.showValues(data);
        this.showSteps();
    }

    showSteps() {
        const { job, step } = this;
        const total = job.total_steps;
        const perEpoch = job.plan && job.plan.steps_per_epoch;
        const epochs = job.hyperparameters.n_epochs;
        setProgress(this.bar, total ? step / total : 0);
        text(this.steps, total ? [`Step ${format.count(step)} of ${format.count(total)}`,
            perEpoch ?
                `epoch ${Math.min(epochs, Math.max(1, Math.ceil(step / perEpoch)))} of ${epochs}` :
                    null]
            .filter(Boolean).join(' · ') : format.stateNames[job.status]);
        text(this.left, this.timeLeft());
    }

    timeLeft() {
        const { job } = this;
        const now = Date.now() / 1000;
        const left = job.estimated_finish - now;
        const wait = job.estimated_start - now;
        if (job.status === 'running' && job.estimated_finish)
            return left < 1 ? 'Nearly done' : `${format.duration(left)} left`;
        if (job.estimated_start && !ENDED.includes(job.status))
            return wait < 5 ? 'Starts soon' : `Starts in ${format.duration(wait)}`;
        if (job.queue_position)
            return `Number ${job.queue_position} in the queue`;
        return job.started_at && job.finished_at ?
            `Took ${format.duration(job.finished_at - job.started_at)}` : ' ';
    }
}

class JobPage {
    constructor(main, id) {
        this.id = id;
        this.head = new Head(this);
        this.now = new Now();
        this.facts = new Facts();
        this.log = new Log(id);
        this.checkpoints = new Checkpoints(id);
        this.sweep = new Sweep(id);
        this.body = el('div', { class: 'stack-wide job-body' });
        main.append(this.head.element, this.now.element, this.body);
        this.readSoon = throttle(400, () => this.readJob().catch(() => {}));
    }

    async readJob() {
        const job = await api.get(api.jobPath(this.id));
        if (!this.isLeft)
            this.showJob(job);
        return job;
    }

    showJob(job) {
        this.job = job;
        this.head.show(job);
        this.now.show(job);
        if (!this.curves) {
            this.curves = new Curves(job,
                () => api.all(`/v1/fine_tuning/jobs?status=${BEGUN.join(',')}`, 200));
            this.body.append(this.curves.element, this.sweep.element,
                el('div', { class: 'job-columns' }, this.log.element, this.checkpoints.element),
                this.facts.element);
        }
        this.facts.show(job);
        this.checkpoints.hasEnded = ENDED.includes(job.status);
        this.sweep.read(job).catch(() => {});
        const isBare = ENDED.includes(job.status) && job.completed_steps === 0;
        this.curves.element.hidden = isBare; /* there will be none */
        this.now.element.hidden = isBare;
    }

    /* What may have changed while nobody listened. */
    async readRest() {
        await Promise.all([this.curves.read(), this.log.read(), this.checkpoints.read()]);
        const newest = {};
        for (const row of this.curves.curves[0].rows())
            Object.entries(row).forEach(([key, value]) => { newest[key] = value === null ?
                newest[key] : value; });
        this.now.showValues(newest);
        /* the thinned curve may end before it */
        this.now.showValues({ train_loss: this.job.train_loss });
    }

    async readAll() {
        await this.readJob();
        await this.readRest();
    }

    take(event) {
        if (!this.curves)
            return;
        if (event.type === 'metrics' || event.type === 'validation')
            this.curves.add(event);
        if (event.fine_tuning_job_id !== this.id)
            return;
        if (event.type === 'metrics') {
            this.now.add(event.data);
            return;
        }
        if (event.type === 'validation')
            this.now.add(event.data);
        this.log.add(event);
        if (event.type === 'checkpoint')
            this.checkpoints.read().catch(() => {});
        this.readSoon();
        if (event.type === 'done')
            announce(event.message);
    }

    start() {
        const end = feed.subscribe({ event: (e) => this.take(e),
            resync: () => this.readAll().catch(() => {}) });
        const timer = setInterval(() => {
            if (!document.hidden && this.job && !ENDED.includes(this.job.status))
                this.readSoon();
        }, REFRESH_MS);
        return () => {
            this.isLeft = true;
            end();
            clearInterval(timer);
            this.readSoon.stop();
            if (this.curves)
                this.curves.close();
        };
    }
}

export async function show(main, params) {
    const page = new JobPage(main, params.id);
    const leave = page.start();
    setTitle('Job');
    main.classList.add('is-waiting'); /* shown at once when all is there */
    try {
        await page.readJob();
    } catch (error) {
        leave();
        main.classList.remove('is-waiting');
        if (error.status !== 404) {
            main.replaceChildren(el('h1', {}, 'This job could not be shown'));
            throw error;
        }
        setTitle('No such job');
        main.replaceChildren(el('h1', {}, 'No such job'), errorNotice(error),
            el('p', {}, el('a', { class: 'button', href: '#/' }, 'All jobs')));
        return null;
    }
    await Promise.race([page.readRest().catch((error) => console.warn(error.message)),
        delay(PATIENCE_MS)]);
    main.classList.remove('is-waiting');
    return leave;
}
