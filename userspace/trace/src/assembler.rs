//! From the records of many processes to one sequence of what-if events.
//!
//! ```text
//! rings ──► per thread: queue ──► events ──► lines
//!                         └─ a record waits here until what it refers to is known
//! ```
//!
//! A *writer* is a process that writes a ring; a *thread* of it is a process of the model. Records of one thread
//! are handled in order; one that must wait (for the other end of a connection to be seen, or for a send that is
//! not recorded yet) holds up its thread alone. Nothing waits longer than its patience.
//!
//! Receives and collectives of MPI are recorded as they begin. That a receive begins is told at once, for a waiting process
//! holds up no prediction; its end, and what follows it in a collective, when what it takes has been told as sent, or when
//! its thread has gone on. One that its thread was in when it ended has taken nothing.

mod account;
mod sockets;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::line::{Happening, Lines, MessageName, Name};
use crate::ranks::{Channel, Groups, Step};
use crate::record::{Event, Record};
use crate::spool::Writer;
use crate::streams::{EndId, Place, Streams};

pub use account::ProcessReport;

/// How long a send waits for the other end of its connection to be seen.
const PEER_PATIENCE_NS: u64 = 200_000_000;
/// How long a receive waits for the record of what it has taken.
const SEND_PATIENCE_NS: u64 = 2_000_000_000;

/// Names a thread: its writer and its number there.
type ThreadId = (usize, u32);

/// A process of the model.
#[derive(Debug)]
struct Thread {
    name: Name,
    /// CPU time at its last event, in ns.
    cpu_ns: u64,
    events: u64,
    total_ns: u64,
    has_exited: bool,
}

/// A process that writes records.
#[derive(Debug)]
pub(super) struct Source {
    writer: Writer,
    host: u64,
    pub(super) groups: Groups,
    ends: HashMap<i32, EndId>,
    /// A local address whose peer's follows.
    opening: HashMap<u32, Place>,
    /// The name of its threads' names, but for ranks.
    base: Option<String>,
    /// Threads so far.
    threads: u32,
    main: Option<u32>,
    is_paused: bool,
    has_exited: bool,
}

/// Where a record may be: handled, or to be tried again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Handled {
    Done,
    Waits { patience_ns: u64 },
}

/// The state over all processes.
#[derive(Default)]
pub(super) struct Assembler {
    sources: Vec<Source>,
    threads: HashMap<ThreadId, Thread>,
    /// In the order in which they appeared.
    order: Vec<ThreadId>,
    queues: BTreeMap<ThreadId, Queue>,
    streams: Streams<ThreadId>,
    hosts: Vec<(u32, String)>,
    programs: HashMap<String, u32>,
    /// Members of communicators, numbered; and sends less receives per channel.
    labels: HashMap<Vec<u32>, u32>,
    balance: HashMap<Channel, i64>,
    ranks: HashMap<u32, ThreadId>,
    lines: Lines,
    /// When what is handled happened, by its machine's clock.
    time_ns: u64,
    has_times: bool,
    /// Sends and receives whose other end is not traced.
    pub(super) outside: u64,
    /// First and last time, by machine: their clocks differ.
    spans: HashMap<u32, (u64, u64)>,
}

/// A record, and the end of a connection that its descriptor meant when it was written.
#[derive(Clone, Copy, Debug)]
struct Item {
    record: Record,
    end: Option<EndId>,
    /// A send's place in the stream.
    place: u64,
}

#[derive(Debug, Default)]
struct Queue {
    items: VecDeque<Item>,
    /// Since when the first one waits.
    since_ns: Option<u64>,
    /// Of MPI calls that were recorded as they began, and may not have ended.
    begun: VecDeque<Begun>,
}

/// A step of an MPI call, with the CPU time and the time at which the call was made.
#[derive(Clone, Copy, Debug)]
struct Begun {
    step: Step,
    cpu_ns: u64,
    time_ns: u64,
    /// Of a receive: that it begins has been told.
    is_told: bool,
}

impl Assembler {
    /// `has_times`: lines say when their events happened.
    pub(super) fn new(has_times: bool) -> Self {
        Self {
            has_times,
            ..Self::default()
        }
    }

    /// A new process; its number is that of the call. An earlier one of the same number has run another
    /// program (exec) or has ended.
    pub(super) fn source(&mut self, writer: Writer) {
        let name = (writer.machine, writer.host.clone());
        let host = match self.hosts.iter().position(|host| *host == name) {
            Some(known) => known,
            None => {
                self.hosts.push(name);
                self.hosts.len() - 1
            }
        } as u64;
        let id = |writer: &Writer| (writer.machine, writer.pid, writer.pid_namespace);
        let earlier: Vec<usize> = (0..self.sources.len())
            .filter(|&index| id(&self.sources[index].writer) == id(&writer))
            .collect();
        self.sources.push(Source {
            writer,
            host,
            groups: Groups::default(),
            ends: HashMap::new(),
            opening: HashMap::new(),
            base: None,
            threads: 0,
            main: None,
            is_paused: false,
            has_exited: false,
        });
        for index in earlier {
            self.exit(index, None);
        }
    }

    /// The events so far, as lines; takes them.
    pub(super) fn take_lines(&mut self) -> Vec<u8> {
        self.lines.take()
    }

    /// A record of the source of this number.
    pub(super) fn record(&mut self, source: usize, record: Record, now_ns: u64) {
        let (first, last) = self
            .spans
            .entry(self.sources[source].writer.machine)
            .or_insert((record.time_ns, record.time_ns));
        (*first, *last) = ((*first).min(record.time_ns), (*last).max(record.time_ns));
        let id = (source, record.thread);
        let ends = &self.sources[source].ends;
        let (mut end, mut place) = (None, 0);
        match record.event {
            // What descriptors mean changes in the order of the process's records, whichever thread waits.
            Event::Local { .. } | Event::Remote { .. } | Event::Closed { .. } => {
                return self.descriptors(id, &record.event);
            }
            Event::Sent {
                descriptor, bytes, ..
            } => {
                end = ends.get(&descriptor).copied();
                place = end.map_or(0, |end| self.streams.reserve(end, bytes));
            }
            Event::Taken { descriptor, .. } => end = ends.get(&descriptor).copied(),
            _ => {}
        }
        let queue = self.queues.entry(id).or_default();
        queue.items.push_back(Item { record, end, place });
        if queue.items.len() == 1 {
            self.work(id, now_ns, false);
        }
    }

    /// Handles what waits, as far as it need not wait any more: one thread's progress may be what another waits for.
    pub(super) fn settle(&mut self, now_ns: u64) {
        let mut goes_on = true;
        while goes_on {
            let waiting: Vec<ThreadId> = self.queues.keys().copied().collect();
            goes_on = false;
            for id in waiting {
                goes_on |= self.work(id, now_ns, false);
            }
        }
    }

    /// Handles a thread's records as far as that is possible, the first one in any case if `forced`; whether
    /// there was any.
    fn work(&mut self, id: ThreadId, now_ns: u64, mut forced: bool) -> bool {
        let mut has_handled = self.go_on(id, false);
        while let Some(queue) = self.queues.get(&id) {
            let Some(&item) = queue.items.front() else {
                if queue.begun.is_empty() {
                    self.queues.remove(&id);
                }
                break;
            };
            let waited = queue.since_ns.map_or(0, |since| now_ns.saturating_sub(since));
            match self.handle(id, &item, forced) {
                Handled::Waits { patience_ns } if waited < patience_ns => {
                    if let Some(queue) = self.queues.get_mut(&id) {
                        queue.since_ns.get_or_insert(now_ns);
                    }
                    break;
                }
                Handled::Waits { .. } => {
                    self.handle(id, &item, true);
                }
                Handled::Done => {}
            }
            (forced, has_handled) = (false, true);
            if let Some(queue) = self.queues.get_mut(&id) {
                (_, queue.since_ns) = (queue.items.pop_front(), None);
            }
        }
        has_handled
    }

    fn handle(&mut self, id: ThreadId, item: &Item, forced: bool) -> Handled {
        let record = &item.record;
        // A signal handler may end a process, and a thread, inside a call.
        if !matches!(record.event, Event::Exit | Event::ThreadExit) {
            self.go_on(id, true);
        }
        self.time_ns = record.time_ns;
        if self.sources[id.0].has_exited {
            if let (Event::Sent { .. }, Some(end)) = (record.event, item.end) {
                self.streams.leave_out(end, item.place);
            }
            return Handled::Done;
        }
        match (record.event, item.end) {
            (Event::Sent { bytes, before, .. }, Some(end)) => {
                return self.sent(id, (end, item.place), bytes, before, forced);
            }
            (Event::Taken { bytes, before, .. }, Some(end)) => {
                return self.taken(id, end, bytes, [before, record.cpu_ns], forced);
            }
            (Event::ThreadExit | Event::Exit | Event::MpiEnd, _)
                if !forced && self.is_awaited(id, record.event) =>
            {
                return Handled::Waits {
                    patience_ns: SEND_PATIENCE_NS,
                };
            }
            (Event::ThreadExit, _) => self.thread_exit(id, Some(record.cpu_ns)),
            (Event::Exit | Event::MpiEnd, _) => {
                let is_paused = self.sources[id.0].is_paused;
                let last = (!is_paused).then_some((id.1, record.cpu_ns));
                self.exit(id.0, last);
            }
            (Event::Paused, _) => self.pause(id, record.cpu_ns),
            (Event::KeepAlive, _) => self.keep_alive(id, record.cpu_ns),
            (Event::Resumed, _) => {
                self.sources[id.0].is_paused = false;
                self.thread(id).cpu_ns = record.cpu_ns;
            }
            (Event::MpiStart { rank }, _) => {
                let source = &mut self.sources[id.0];
                source.groups.rank = Some(rank);
                source.main = Some(id.1);
                self.ranks.entry(rank).or_insert(id);
                self.thread(id).cpu_ns = record.cpu_ns;
            }
            (event, _) => self.message_passing(id, &event, record.cpu_ns),
        }
        Handled::Done
    }

    /// Whether something is left to tell before this end of a thread or its process.
    fn is_awaited(&self, id: ThreadId, end: Event) -> bool {
        let mut queues = self.queues.range((id.0, 0)..=(id.0, u32::MAX));
        queues.any(|(&thread, queue)| match thread == id {
            true => !queue.begun.is_empty(),
            false => end != Event::ThreadExit && !(queue.items.is_empty() && queue.begun.is_empty()),
        })
    }

    fn message_passing(&mut self, id: ThreadId, event: &Event, cpu_ns: u64) {
        let mut steps = Vec::new();
        let groups = &mut self.sources[id.0].groups;
        groups.record(id.1, event, &mut self.labels, &mut steps);
        let time_ns = self.time_ns;
        let begun = steps.into_iter().map(|step| Begun {
            step,
            cpu_ns,
            time_ns,
            is_told: false,
        });
        self.queues.entry(id).or_default().begun.extend(begun);
        self.go_on(id, matches!(event, Event::Complete { .. }));
    }

    /// Tells what a thread's calls have done by now, all of it if they have `ended`; whether there was any.
    fn go_on(&mut self, id: ThreadId, ended: bool) -> bool {
        let mut has_told = false;
        while let Some(begun) = self.queues.get_mut(&id).and_then(|queue| queue.begun.front_mut()) {
            let was_told = std::mem::replace(&mut begun.is_told, true);
            let Begun {
                step,
                cpu_ns,
                time_ns,
                ..
            } = *begun;
            self.time_ns = time_ns;
            match step {
                Step::Send { channel, bytes } => {
                    self.settle_balance(channel, 1);
                    self.send(id, cpu_ns, channel, bytes);
                }
                Step::Receive { channel } => {
                    let message = MessageName::Channel(channel);
                    if !was_told {
                        self.emit(id, cpu_ns, &Happening::StartReceive { message });
                    }
                    if !ended && self.balance.get(&channel).is_none_or(|sent| *sent <= 0) {
                        break;
                    }
                    self.settle_balance(channel, -1);
                    self.emit(id, cpu_ns, &Happening::EndReceive { message });
                }
            }
            has_told = true;
            if let Some(queue) = self.queues.get_mut(&id) {
                queue.begun.pop_front();
            }
        }
        has_told
    }

    /// A send of MPI.
    fn send(&mut self, id: ThreadId, cpu_ns: u64, channel: Channel, bytes: u64) {
        let to = Name::Rank(channel.to);
        let message = MessageName::Channel(channel);
        self.emit(id, cpu_ns, &Happening::Send { message, bytes, to });
    }

    fn settle_balance(&mut self, channel: Channel, change: i64) {
        let count = self.balance.entry(channel).or_default();
        *count += change;
        if *count == 0 {
            self.balance.remove(&channel);
        }
    }

    /// What is recorded next begins anew; what was computed up to here counts.
    fn pause(&mut self, id: ThreadId, cpu_ns: u64) {
        self.sources[id.0].is_paused = true;
        if self.thread(id).cpu_ns < cpu_ns {
            self.emit(id, cpu_ns, &Happening::Compute);
        }
    }

    /// A thread that is known has computed since its last event.
    fn keep_alive(&mut self, id: ThreadId, cpu_ns: u64) {
        let computed = self.threads.get(&id).is_some_and(|thread| thread.cpu_ns < cpu_ns);
        if computed && !self.sources[id.0].is_paused {
            self.emit(id, cpu_ns, &Happening::KeepAlive);
        }
    }

    /// Who this is in the trace; named when it is first seen.
    fn thread(&mut self, id: ThreadId) -> &mut Thread {
        let (order, source, programs) = (&mut self.order, &mut self.sources[id.0], &mut self.programs);
        self.threads.entry(id).or_insert_with(|| {
            order.push(id);
            let place = source.threads;
            source.threads += 1;
            let is_main = source.main.map_or(place == 0, |main| main == id.1);
            let name = match source.groups.rank {
                Some(rank) if is_main => Name::Rank(rank),
                Some(rank) => Name::Text(format!("{rank}/{}", place + 1)),
                None => {
                    let base = source.base.get_or_insert_with(|| {
                        let count = programs.entry(source.writer.name.clone()).or_default();
                        *count += 1;
                        format!("{}.{count}", source.writer.name)
                    });
                    Name::Text(match place {
                        0 => base.clone(),
                        _ => format!("{base}/{}", place + 1),
                    })
                }
            };
            Thread {
                name,
                cpu_ns: 0,
                events: 0,
                total_ns: 0,
                has_exited: false,
            }
        })
    }

    fn emit(&mut self, id: ThreadId, cpu_ns: u64, event: &Happening) {
        let time_ns = self.has_times.then_some(self.time_ns);
        let thread = self.thread(id);
        if thread.has_exited {
            return;
        }
        let spent = cpu_ns.saturating_sub(thread.cpu_ns);
        thread.cpu_ns = thread.cpu_ns.max(cpu_ns);
        thread.total_ns += spent;
        thread.events += 1;
        let name = thread.name.clone();
        self.lines.write(&name, spent, time_ns, event);
    }

    fn thread_exit(&mut self, id: ThreadId, cpu_ns: Option<u64>) {
        if let Some(queue) = self.queues.get_mut(&id) {
            queue.begun.clear();
        }
        if let Some(thread) = self.threads.get(&id).filter(|thread| !thread.has_exited) {
            let cpu_ns = cpu_ns.unwrap_or(thread.cpu_ns);
            self.emit(id, cpu_ns, &Happening::Exit);
            if let Some(thread) = self.threads.get_mut(&id) {
                thread.has_exited = true;
            }
        }
    }

    /// A process ends; `last` is the thread that ends it and its CPU time, if that is known.
    fn exit(&mut self, source: usize, last: Option<(u32, u64)>) {
        if std::mem::replace(&mut self.sources[source].has_exited, true) {
            return;
        }
        for (_, queue) in self.queues.range_mut((source, 0)..=(source, u32::MAX)) {
            queue.begun.clear();
        }
        let threads: Vec<ThreadId> = self
            .order
            .iter()
            .filter(|thread| thread.0 == source)
            .copied()
            .collect();
        for id in threads {
            let cpu_ns = last.filter(|(thread, _)| *thread == id.1).map(|(_, cpu)| cpu);
            self.thread_exit(id, cpu_ns);
        }
    }

    /// No record will follow. Processes that were killed end here, in the calls that they were in, and after sends that
    /// they made and whose records are missing, for others have received them.
    pub(super) fn finish(&mut self, now_ns: u64) {
        self.settle(now_ns);
        let first = |(id, queue): (&ThreadId, &Queue)| Some((queue.items.front()?.record.time_ns, *id));
        while let Some((_, id)) = self.queues.iter().filter_map(first).min() {
            self.work(id, now_ns, true);
            self.settle(now_ns);
        }
        self.queues.clear();
        let mut owed: Vec<(Channel, i64)> = self.balance.drain().filter(|(_, count)| *count < 0).collect();
        owed.sort_by_key(|(channel, _)| *channel);
        for (channel, count) in owed {
            if let Some(&id) = self.ranks.get(&channel.from) {
                let cpu_ns = self.thread(id).cpu_ns;
                for _ in count..0 {
                    self.send(id, cpu_ns, channel, 0);
                }
            }
        }
        for source in 0..self.sources.len() {
            self.exit(source, None);
        }
    }
}
