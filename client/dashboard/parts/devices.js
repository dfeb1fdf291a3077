/*
 * devices: what this machine computes with, as cards, and why a platform is missing.
 */
import * as api from '../api.js';
import { el, icon, Keyed, text } from './dom.js';
import * as format from './format.js';

/* isLimit: a full one is something to look at. */
function meter(label, isLimit) {
    const bar = el('div', { class: 'meter-bar', 'data-kind': label.toLowerCase() });
    const value = el('span', { class: 'num' });
    return { bar, value, isLimit,
             element: el('div', { class: 'meter' },
                 el('div', { class: 'meter-text' }, el('span', { class: 'faint' }, label), value),
                 el('div', { class: 'meter-track', 'aria-hidden': 'true' }, bar)) };
}

function setMeter(gauge, share, words) {
    gauge.bar.style.transform = `scaleX(${Math.max(0, Math.min(1, share || 0))})`;
    gauge.bar.dataset.full = gauge.isLimit && share > 0.9;
    text(gauge.value, words);
}

/* A device's load in words: what its running jobs process a second. */
function rateOf(device, rates) {
    const known = device.jobs.map((id) => rates.get(id)).filter(Number.isFinite);
    return known.length ? `${format.count(known.reduce((a, b) => a + b, 0))} tokens/s` : null;
}

function describe(device) {
    const facts = [];
    if (device.platform === 'cuda')
        facts.push(device.capability ? `compute ${device.capability}` : null,
            device.driver ? `driver ${device.driver}` : null);
    else
        facts.push(format.plural(device.threads, 'thread'), device.simd_level, device.library);
    if (device.temperature_celsius !== null)
        facts.push(`${device.temperature_celsius} °C`);
    if (device.power_watts !== null)
        facts.push(`${device.power_watts} W`);
    return facts.filter(Boolean).join(' · ');
}

const problemOf = (device) => (device.in_service ? null : device.reason || 'out of service');
const warningsOf = (device) => [device.library_warning, device.simd_warning].filter(Boolean);

export class Devices {
    constructor() {
        this.rates = new Map(); /* of running jobs, tokens a second */
        this.names = new Map();
        this.list = el('ul', { class: 'grid' });
        this.missing = el('ul', { class: 'missing small' });
        this.cards = new Keyed(this.list, (d) => this.make(d), (e, d) => this.update(e, d));
        this.element = el('section', { class: 'section', 'aria-labelledby': 'devices' },
            el('div', { class: 'section-head' }, el('h2', { id: 'devices' }, 'Devices')), this.list,
                this.missing);
        this.list.append(el('li', { class: 'skeleton device-skeleton' }));
        this.parts = new WeakMap();
    }

    async read() {
        const answer = await api.get('/v1/devices').catch(() => null);
        if (!answer)
            return;
        if (!this.answer)
            this.list.replaceChildren();
        this.answer = answer;
        this.draw();
    }

    showJobs(jobs) {
        this.names = new Map(jobs.map((job) => [job.id, job.name]));
        this.draw();
    }

    draw() {
        if (!this.answer)
            return;
        this.cards.show(this.answer.data);
        this.element.classList.toggle('is-many', this.answer.data.length > 4);
        this.missing.replaceChildren(...this.answer.missing.map((one) => el('li', {},
            el('span', { class: 'tag' }, one.platform),
                el('span', {}, ` is not there: ${one.reason}`))));
    }

    make(device) {
        const parts = { state: el('span', { class: 'tag' }),
            facts: el('p', { class: 'faint small' }),
                        memory: meter('Memory', true), load: meter('Jobs', false),
                        jobs: el('ul', { class: 'device-jobs small' }), problem: el('div', {}) };
        const card = el('li', { class: 'card device' },
            el('div', { class: 'device-head' }, icon('chip'),
                el('div', { class: 'device-name' }, el('h3', { class: 'cut', title: device.name },
                    device.name),
                    el('p', { class: 'mono tiny faint' }, device.id)), parts.state),
            parts.facts, parts.memory.element, parts.load.element, parts.jobs, parts.problem);
        this.parts.set(card, parts);
        return card;
    }

    update(card, device) {
        const parts = this.parts.get(card);
        const total = device.memory_total_bytes;
        const used = total === null || device.memory_free_bytes === null ? null :
            total - device.memory_free_bytes;
        const rate = rateOf(device, this.rates);
        const problem = problemOf(device);

        text(parts.state, problem ? 'Out of service' : device.jobs.length ? 'Busy' :
            device.self_check.verdict === 'running' ? 'Checking' : 'Free');
        parts.state.dataset.state = problem ? 'bad' : device.jobs.length ? 'busy' : 'free';
        text(parts.facts, describe(device));
        setMeter(parts.memory, used / total, used === null ? format.bytes(total) :
            `${format.bytes(used)} of ${format.bytes(total)}`);
        setMeter(parts.load, device.jobs.length / device.jobs_max,
            [`${device.jobs.length} of ${device.jobs_max}`, rate].filter(Boolean).join(' · '));
        parts.jobs.replaceChildren(...(device.jobs.length ?
            device.jobs.map((id) => el('li', { class: 'cut' },
            el('a', { href: `#/jobs/${id}` }, this.names.get(id) || id))) :
            [el('li', { class: 'faint' }, problem ? ' ' : 'Nothing runs here')]));
        const said = [problem, ...warningsOf(device)].filter(Boolean).join('\n');
        if (parts.said !== said) {
            parts.said = said;
            parts.problem.replaceChildren(...said.split('\n').filter(Boolean).map((words) =>
                el('p', { class: 'device-problem small' }, words)));
        }
    }
}
