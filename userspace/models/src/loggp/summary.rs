//! The communication summary of a traced run.
//!
//! Model: a *process* is one or more *threads*, whose names are that of the process and what follows a slash (`solver.1`,
//! `solver.1/2`). A thread's sends and receives are told in its own order; those of different threads in the order in
//! which they happened, as far as it is known.
//!
//! **Blocking round trips.** Thread T sends the message m; a thread U of another process takes m and afterwards sends m';
//! a thread of T's process takes m'. Meanwhile T sends at most one message for each that it takes: it answers others
//! while it waits, and goes on with nothing of its own. Then T has waited for an answer: one round trip, of two messages,
//! Martin's read (request and reply; Martin 1999, section 3.2). Where T itself takes m', all that it takes behind m'
//! before it sends again must be U's: else it was another's message for which it waited. (What U sends behind m', a request
//! of its own, say, it sends after m, too.) A message answers requests of one thread. The round trips of one thread come
//! one after another: what was sent before one has ended begins no other. Those of different threads overlap, so that t is the
//! largest number that any thread made: a latency of ΔL more adds 2 t ΔL. An exchange waits for one latency, so two of
//! them are a round trip.
//!
//! What it lacks: other waits for one latency (a pipeline, a barrier whose answer another thread gives) are no round trips;
//! a process that computes, or is held up by a full connection, while an answer comes that it does not wait for looks like
//! one that waits; the message of a partner who is late, and so has taken one before it sends its own, looks like an answer.

use std::collections::{BTreeMap, HashMap, VecDeque};

use perturb_quantity::ByteSize;

use super::input::Messages;
use crate::whatif::MessageId;

/// Messages, bytes and round trips by process, gathered one event at a time.
#[derive(Clone, Debug, Default)]
pub struct CommunicationSummary {
    processes: BTreeMap<String, usize>,
    /// By the processes' numbers.
    sent: Vec<BTreeMap<usize, Sent>>,
    names: HashMap<String, usize>,
    threads: Vec<Thread>,
    /// Messages on their way; of equal ids the first one sent is the first one taken.
    flying: HashMap<MessageId, VecDeque<Flying>>,
    /// Told to be taken before they were told to be sent: by whom, and when by that thread's clock.
    early: HashMap<MessageId, VecDeque<(usize, u64)>>,
    has_receives: bool,
}

/// To one other process, or to nobody known.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    messages: u64,
    bytes: f64,
}

#[derive(Clone, Debug, Default)]
struct Thread {
    process: usize,
    /// Events so far.
    clock: u64,
    /// The message that it sent first since its last round trip ended, as far as it may begin one.
    open: Option<Open>,
    sends: u64,
    round_trips: u64,
    /// Whose answer it has taken to what it has sent last, and since then nothing of others.
    answered_by: Option<usize>,
    /// By the thread that sent it: the last message that it has taken and that was open.
    taken: BTreeMap<usize, Taken>,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    /// Of the thread's sends.
    number: u64,
    /// Messages that the thread has taken since, and that no send has answered.
    taken: u64,
}

#[derive(Clone, Copy, Debug)]
struct Taken {
    /// Of the sender's sends.
    number: u64,
    /// The taker's clock.
    at: u64,
    /// It answers a request of the taker's process.
    is_answer: bool,
}

#[derive(Clone, Copy, Debug)]
struct Flying {
    thread: usize,
    /// Of the thread's sends.
    number: u64,
    /// The thread's clock.
    at: u64,
    bytes: f64,
}

/// Receiver of messages that nobody is seen to take.
const NOBODY: usize = usize::MAX;

impl Thread {
    fn is_open(&self, number: u64) -> bool {
        self.open.is_some_and(|open| open.number == number)
    }
}

impl CommunicationSummary {
    /// Notes a thread, so that a process that sends nothing counts in the average.
    pub fn thread(&mut self, name: &str) -> usize {
        if let Some(&known) = self.names.get(name) {
            return known;
        }
        let process = name.rsplit_once('/').map_or(name, |(process, _)| process);
        let process = match self.processes.get(process) {
            Some(&known) => known,
            None => {
                let number = self.sent.len();
                self.processes.insert(process.to_owned(), number);
                self.sent.push(BTreeMap::new());
                number
            }
        };
        let number = self.threads.len();
        self.threads.push(Thread {
            process,
            ..Thread::default()
        });
        self.names.insert(name.to_owned(), number);
        number
    }

    /// Notes that a thread has sent a message.
    pub fn sent(&mut self, name: &str, message: Option<MessageId>, bytes: f64) {
        let number = self.thread(name);
        let thread = &mut self.threads[number];
        thread.clock += 1;
        thread.sends += 1;
        thread.round_trips += u64::from(thread.answered_by.take().is_some());
        // What is sent in between answers what was taken; else it is the thread's own, and does not wait.
        thread.open = match thread.open {
            Some(open) if open.taken > 0 => Some(Open {
                taken: open.taken - 1,
                ..open
            }),
            _ => Some(Open {
                number: thread.sends,
                taken: 0,
            }),
        };
        let flying = Flying {
            thread: number,
            number: thread.sends,
            at: thread.clock,
            bytes,
        };
        count(&mut self.sent[thread.process], NOBODY, bytes);
        let Some(message) = message else { return };
        match pop(&mut self.early, message) {
            Some((taker, clock)) => self.meet(flying, taker, clock),
            None => self.flying.entry(message).or_default().push_back(flying),
        }
    }

    /// Notes that a thread has taken a message.
    pub fn taken(&mut self, name: &str, message: MessageId) {
        self.has_receives = true;
        let taker = self.thread(name);
        let flying = pop(&mut self.flying, message);
        let thread = &mut self.threads[taker];
        thread.clock += 1;
        if thread.answered_by != flying.map(|flying| flying.thread) {
            thread.answered_by = None;
        }
        if let Some(open) = &mut thread.open {
            open.taken += 1;
        }
        let clock = thread.clock;
        match flying {
            Some(flying) => self.meet(flying, taker, clock),
            None => self.early.entry(message).or_default().push_back((taker, clock)),
        }
    }

    /// A message that was sent is the one that a thread took when its clock stood so.
    fn meet(&mut self, flying: Flying, taker: usize, clock: u64) {
        let (process, sender) = (self.threads[taker].process, self.threads[flying.thread].process);
        // Now it is known to whom it went.
        let sent = &mut self.sent[sender];
        if let Some(unknown) = sent.get_mut(&NOBODY) {
            unknown.messages -= 1;
            unknown.bytes -= flying.bytes;
        }
        count(sent, process, flying.bytes);
        let is_answer = process != sender && self.answers(taker, flying);
        if self.threads[flying.thread].is_open(flying.number) {
            let taken = Taken {
                number: flying.number,
                at: clock,
                is_answer,
            };
            self.threads[taker].taken.insert(flying.thread, taken);
        }
    }

    /// Whether a message answers a request of the taker's process, whose round trip then ends: the last one that its sender
    /// has taken, and one that is itself an answer only if there is no other.
    fn answers(&mut self, taker: usize, answer: Flying) -> bool {
        let process = self.threads[taker].process;
        let taken = self.threads[answer.thread].taken.iter();
        let requests = taken.filter(|&(&thread, taken)| {
            let asked = &self.threads[thread];
            asked.process == process && asked.is_open(taken.number) && taken.at < answer.at
        });
        let Some((&thread, _)) = requests.max_by_key(|(_, taken)| (!taken.is_answer, taken.at)) else {
            return false;
        };
        let asked = &mut self.threads[thread];
        asked.open = None;
        if thread == taker {
            asked.answered_by = Some(answer.thread);
        } else {
            asked.round_trips += 1;
        }
        true
    }

    /// What the models need: the largest numbers of messages and bytes of any process, the average number of messages,
    /// and the largest number of round trips of any thread; the mean interval follows from the run time. `None` for an
    /// empty trace; without receives nothing is known of round trips.
    #[must_use]
    pub fn messages(&self) -> Option<Messages> {
        let sums = || {
            self.sent
                .iter()
                .map(|sent| sent.values().map(|sent| sent.messages).sum::<u64>())
        };
        let bytes = self
            .sent
            .iter()
            .map(|sent| sent.values().map(|sent| sent.bytes).sum());
        Some(Messages {
            maximum: sums().max()?,
            average: Some(sums().sum::<u64>() as f64 / self.sent.len() as f64),
            interval: None,
            reads: None,
            round_trips: self.has_receives.then(|| self.round_trips()),
            bulk: None,
            bulk_bytes: Some(ByteSize(bytes.fold(0.0, f64::max))),
            bulk_rate: None,
            fragment: None,
        })
    }

    /// The largest number of blocking round trips of any thread: t.
    #[must_use]
    pub fn round_trips(&self) -> u64 {
        let of_threads = self
            .threads
            .iter()
            .map(|thread| thread.round_trips + u64::from(thread.answered_by.is_some()));
        of_threads.max().unwrap_or(0)
    }

    /// Names of the processes that send or receive, and the messages and bytes from each (row) to each (column);
    /// messages that nobody is seen to take are left out.
    #[must_use]
    pub fn balance(&self) -> (Vec<String>, Vec<Vec<u64>>, Vec<Vec<f64>>) {
        let talks = |process: usize| {
            let own = self.sent[process].keys().any(|to| *to != NOBODY);
            own || self.sent.iter().any(|sent| sent.contains_key(&process))
        };
        let mut talking: Vec<(&String, usize)> = self
            .processes
            .iter()
            .map(|(name, number)| (name, *number))
            .filter(|(_, number)| talks(*number))
            .collect();
        // Ranks by their numbers.
        talking.sort_by_key(|(name, _)| (name.parse::<u64>().unwrap_or(u64::MAX), *name));
        let row = |from: usize| -> Vec<Sent> {
            let to = talking.iter().map(|(_, to)| self.sent[from].get(to));
            to.map(|sent| sent.copied().unwrap_or_default()).collect()
        };
        let rows: Vec<Vec<Sent>> = talking.iter().map(|(_, from)| row(*from)).collect();
        let names = talking.iter().map(|(name, _)| (*name).clone()).collect();
        let pick = |row: &Vec<Sent>| row.iter().map(|sent| sent.messages).collect();
        let messages = rows.iter().map(pick).collect();
        let pick = |row: &Vec<Sent>| row.iter().map(|sent| sent.bytes).collect();
        (names, messages, rows.iter().map(pick).collect())
    }
}

/// The first of those with an id.
fn pop<T>(queues: &mut HashMap<MessageId, VecDeque<T>>, message: MessageId) -> Option<T> {
    let queue = queues.get_mut(&message)?;
    let first = queue.pop_front();
    if queue.is_empty() {
        queues.remove(&message);
    }
    first
}

fn count(sent: &mut BTreeMap<usize, Sent>, to: usize, bytes: f64) {
    let sent = sent.entry(to).or_default();
    sent.messages += 1;
    sent.bytes += bytes;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Events as `T>m` (T sends m) and `T<m` (T takes m).
    fn summary(events: &str) -> CommunicationSummary {
        let mut summary = CommunicationSummary::default();
        for event in events.split_whitespace() {
            let at = event.find(['<', '>']).unwrap();
            let message = MessageId::of_name(&event.as_bytes()[at + 1..]);
            match &event[at..=at] {
                ">" => summary.sent(&event[..at], Some(message), 10.0),
                _ => summary.taken(&event[..at], message),
            }
        }
        summary
    }

    fn round_trips(events: &str) -> u64 {
        summary(events).round_trips()
    }

    #[test]
    fn a_request_and_its_reply_are_one_round_trip() {
        assert_eq!(round_trips("a>1 b<1 b>2 a<2"), 1);
        // The server waits for the next request as well, but never longer than the client waits for it.
        assert_eq!(round_trips("a>1 b<1 b>2 a<2 a>3 b<3 b>4 a<4 a>5 b<5 b>6 a<6"), 3);
        // Threads serve, and hand the replies on.
        assert_eq!(round_trips("a>1 b/2<1 b/2>2 a/2<2 a>3 b/2<3 b/2>4 a/2<4"), 2);
        // A thread's reply to others is no request that the answer to its process's own could be for.
        assert_eq!(
            round_trips("b>0 a/2<0 a/2>1 b/2<1 a>2 b/2<2 b/2>3 a/2<3 a>4 b/2<4 b/2>5 a/2<5"),
            2
        );
        // Both read of each other at once.
        assert_eq!(
            round_trips(
                "a>1 b>2 a/2<2 b/2<1 a/2>3 b/2>4 a/2<4 b/2<3 a>5 b>6 a/2<6 b/2<5 a/2>7 b/2>8 a/2<8 b/2<7"
            ),
            2
        );
        // Both by a single thread each: who waits answers the other's request meanwhile.
        assert_eq!(
            round_trips("a>1 b>2 a<2 a>3 b<1 b>4 a<4 b<3 a>5 b>6 a<6 a>7 b<5 b>8 a<8 b<7"),
            2
        );
        // It sends more than it has taken: that is not all answers.
        assert_eq!(round_trips("a>1 b>2 a<2 a>3 a>4 b<1 b>5 a<5"), 0);
        // An exchange waits for one latency: two of them are a round trip, one is none.
        assert_eq!(round_trips("a>1 b>2 a<2 b<1 a>3 b>4 a<4 b<3"), 1);
        assert_eq!(round_trips("a>1 b>2 a<2 b<1"), 0);
        // Both by a single thread each: what answers the one's request is followed by the other's own, and taken with it.
        assert_eq!(
            round_trips("a>1 b<1 b>2 b>3 a<2 a<3 a>4 a>5 b<4 b<5 b>6 b>7 a<6 a<7 a>8 b<8"),
            2
        );
        // One receive takes the request and the reply that followed it: what is sent next answers the request.
        assert_eq!(
            round_trips(
                "a>1 b>2 a/2<2 a/2>3 b/2<1 b/2<3 b/2>4 a/2<4 a>5 b>6 b/2<5 b/2>7 a/2<6 a/2<7 a/2>8 b/2<8"
            ),
            2
        );
    }

    #[test]
    fn what_is_not_waited_for_is_no_round_trip() {
        // Pipelined: acknowledgments come after further messages.
        assert_eq!(round_trips("a>1 a>2 a>3 b<1 b>x b<2 b>y a<x a<y"), 0);
        // Only the last one's answer is waited for.
        assert_eq!(round_trips("a>1 a>2 b<1 b>x b<2 b>y a<x a<y"), 1);
        // It is c's message that a waits for; b is only early with its next one.
        assert_eq!(round_trips("a>1 b<1 b>2 a<2 c>3 a<3 a>4"), 0);
        assert_eq!(round_trips("c>3 a>1 b<1 a<3 b>2 a<2 a>4"), 1);
        // An answer that was on its way before.
        assert_eq!(round_trips("b>x a>1 a<x b<1"), 0);
        // Other threads' talk is no answer.
        assert_eq!(round_trips("a>1 b/2<1 b>x a<x"), 0);
        // Messages within a process.
        assert_eq!(round_trips("a>1 a/2<1 a/2>2 a<2"), 0);
    }

    #[test]
    fn equal_ids_are_taken_in_their_order() {
        // As MPI's: the k-th send of a channel meets the k-th receive.
        assert_eq!(round_trips("0>q 0>q 1<q 1>r 0<r 1<q 1>r 0<r"), 1);
    }

    #[test]
    fn a_message_may_be_told_taken_before_it_is_told_sent() {
        assert_eq!(round_trips("b<1 a>1 b>2 a<2"), 1);
        // One inversion does not put off those that follow.
        let rounds = "a>q b<q b>r a<r ".repeat(4);
        assert_eq!(round_trips(&format!("b<q a>q b>r a<r {rounds}")), 5);
        assert_eq!(round_trips(&format!("{rounds} b<q a>q b>r a<r {rounds}")), 9);
    }

    #[test]
    fn the_balance_is_between_processes() {
        let summary = summary("10>1 2/3<1 2>2 10<2 2>3 10/2<3 2>lost idle<none");
        let (names, messages, bytes) = summary.balance();
        assert_eq!(names, ["2", "10"]);
        assert_eq!(messages, [[0, 2], [1, 0]]);
        assert_eq!(bytes, [[0.0, 20.0], [10.0, 0.0]]);
        let messages = summary.messages().unwrap();
        assert_eq!((messages.maximum, messages.average), (3, Some(4.0 / 3.0)));
        assert_eq!(messages.bulk_bytes, Some(ByteSize(30.0)));
    }
}
