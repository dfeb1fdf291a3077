/*
 * home: what the machine does: devices, running jobs, the queue, what has ended.
 *
 * Each section is a part of its own. Events of jobs make them read anew, a little later and
 * together; metrics move the running jobs' curves at once.
 */
import * as api from '../api.js';
import * as feed from '../feed.js';
import * as session from '../session.js';
import { delay, el, icon, text, throttle } from '../parts/dom.js';
import { command } from '../parts/controls.js';
import { setTitle } from '../parts/page.js';
import { Devices } from '../parts/devices.js';
import { Finished } from '../parts/finished.js';
import { Queue } from '../parts/queue.js';
import { Running } from '../parts/running.js';

const REFRESH_MS = 5000;
const PATIENCE_MS = 1500; /* then what is there is shown */
const UNFINISHED = ['validating_files', 'queued', 'running', 'paused'];

function firstSteps() {
    const steps = [
        ['Write lines',
            'One JSON object a line: the tools, what the user says, the calls that should come. ' +
            'A file of a hundred lines is a start.'],
        ['Give the file to needled',
            'Drop it on the page New job, which shows what is wrong with it and how long ' +
            'training will take, or send it from a shell:'],
        ['Follow it here',
            'The curve draws itself while the job trains. When it has ended, the adapter is ' +
            'ready to download.'],
    ];
    return el('section', { class: 'card first-steps', 'aria-labelledby': 'first-steps' },
        el('div', {}, el('h2', { id: 'first-steps' }, 'Train your first model'),
            el('p', { class: 'muted' }, 'Nothing has been trained here yet. Three steps:')),
        el('ol', { class: 'steps' }, steps.map(([name, words], i) => el('li', { class: 'step' },
            el('span', { class: 'step-number num', 'aria-hidden': 'true' }, i + 1),
            el('div', { class: 'stack' }, el('h3', {}, name), el('p', { class: 'muted' }, words),
                i === 1 ? command('needlectl submit lines.jsonl') : null)))),
        el('div', { class: 'row changes' },
            el('a', { class: 'button button-primary', href: '#/new' }, icon('new'), 'New job')));
}

class Home {
    constructor(main) {
        this.heading = el('h1', {}, 'Home');
        this.summary = el('p', { class: 'muted num summary' }, ' ');
        this.devices = new Devices();
        this.running = new Running();
        this.queue = new Queue(() => this.readJobs());
        this.finished = new Finished();
        this.first = el('div', { hidden: true });
        this.newJob = el('a', { class: 'button button-primary head-new changes', href: '#/new' },
            icon('new'), 'New job');
        this.now = el('div', { class: 'home-now' },
            el('div', { class: 'home-jobs' }, this.running.element, this.queue.element),
                this.devices.element);
        this.now.hidden = this.finished.element.hidden = true; /* shown at once when all is there */
        main.append(
            el('div', { class: 'page-head' }, el('div', {}, this.heading, this.summary),
                this.newJob),
            this.first, this.now, this.finished.element);
        this.readSoon = throttle(400, () => this.readJobs());
        this.readEndedSoon = throttle(800, () => this.finished.read());
        this.reading = 0;
    }

    async readJobs() {
        const mine = ++this.reading;
        const [jobs] = await Promise.all([
            api.all(`/v1/fine_tuning/jobs?status=${UNFINISHED.join(',')}`).catch(() => null),
            session.known().catch(() => null)]); /* whose are they? */
        if (!jobs || mine !== this.reading)
            return;
        this.jobs = jobs;
        this.running.show(jobs.filter((job) => job.status === 'running' ||
            job.status === 'paused'));
        this.queue.show(jobs.filter((job) => job.status === 'queued' ||
            job.status === 'validating_files'));
        this.devices.showJobs(jobs);
        this.showSummary();
    }

    showSummary() {
        const of = (...states) => (this.jobs || []).filter((job) =>
            states.includes(job.status)).length;
        const waiting = of('queued', 'validating_files');
        const paused = of('paused');
        const nothing = !this.jobs || this.jobs.length === 0;

        text(this.summary, !this.jobs ? ' ' : [
            of('running') ? `${of('running')} running` : 'Nothing is running',
            waiting ? `${waiting} waiting` : null, paused ? `${paused} paused` : null,
        ].filter(Boolean).join(' · '));
        const isFirst = nothing && this.finished.isEmpty();
        if (isFirst && !this.first.firstChild)
            this.first.append(firstSteps());
        this.first.hidden = !isFirst;
        this.newJob.hidden = isFirst;
        this.now.classList.toggle('is-first', isFirst);
        this.running.element.parentNode.hidden = isFirst;
        this.finished.element.hidden = isFirst || !this.isShown;
    }

    reveal() {
        this.isShown = true;
        this.now.hidden = false;
        this.showSummary();
    }

    async readAll() {
        await Promise.all([this.readJobs(), this.finished.read(), this.devices.read()]);
        this.reveal();
    }

    take(event) {
        if (event.type === 'metrics') {
            this.running.addMetrics(event);
            if (event.data)
                this.devices.rates.set(event.fine_tuning_job_id, event.data.tokens_per_second);
            return;
        }
        this.readSoon();
        if (event.type === 'done' || event.type === 'state')
            this.readEndedSoon();
    }

    start() {
        const end = feed.subscribe({ event: (e) => this.take(e), resync: () => this.readAll() });
        const timer = setInterval(() => {
            if (document.hidden)
                return;
            this.devices.read();
            if (this.jobs && this.jobs.length)
                this.readSoon();
        }, REFRESH_MS);
        const leave = () => {
            end();
            clearInterval(timer);
            this.readSoon.stop();
            this.readEndedSoon.stop();
            this.reading++;
            this.running.close();
            this.finished.close();
        };
        /* Another search or page of what has ended. */
        leave.update = ({ query }) => {
            this.finished.take(query);
            this.finished.read(true);
        };
        return leave;
    }
}

export async function show(main, params) {
    setTitle('Home');
    const home = new Home(main);
    home.finished.take(params.query);
    const leave = home.start();
    home.finished.onRead = () => home.showSummary();
    await Promise.race([home.readAll(), delay(PATIENCE_MS)]);
    home.reveal();
    return leave;
}
