//! `perturb trace --merge`: one trace of the processes of several machines.
//!
//! Each machine's `perturb trace --to` sends the records of its processes, and they are assembled here as if they were
//! one machine's, except that process numbers, loopback addresses and sockets' cookies are those of a machine.
//! A message is recognized by what both ends know of it: ranks and tags (MPI), or both addresses of its connection.
//!
//! Clocks need not agree: what the model needs is each thread's own CPU time and the order of each thread's own events.
//! Nothing here compares times of two machines.
//!
//! What it lacks: connections whose addresses are translated on the way (NAT), for their ends do not find each other.

use std::collections::HashMap;
use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use crate::address::{Address, Listener};
use crate::assembler::Assembler;
use crate::record;
use crate::run::{Options, Report, Trace, TraceError, write_scenario};
use crate::spool::Writer;
use crate::wire::{self, Frame, FrameError};

/// How often records that wait for others are looked at again.
const PAUSE: Duration = Duration::from_millis(20);
/// Frames that wait to be assembled.
const WAITING: usize = 64;

/// What a connection brings.
enum Event {
    Frame(Frame),
    Ended(Result<(), FrameError>),
}

/// Merges the traces of so many senders; `broken` hears of each whose trace is incomplete.
///
/// # Errors
/// When the address cannot be listened at, or a file not written.
pub fn merge(
    options: &Options,
    address: &Address,
    senders: u32,
    mut broken: impl FnMut(FrameError),
) -> Result<Report, TraceError> {
    let listener = Listener::bind(address).map_err(TraceError::Merge)?;
    let mut trace = Trace::create(options)?;
    let (to, events) = mpsc::sync_channel(WAITING);
    std::thread::spawn(move || accept(&listener, senders, &to));
    let mut merger = Merger::default();
    let mut left = senders;
    while left > 0 {
        if let Some(end) = merger.next(&events)? {
            left -= 1;
            if let Err(error) = end {
                broken(error);
            }
        }
        trace.append(&merger.assembler.take_lines())?;
    }
    merger.assembler.finish(merger.now());
    trace.append(&merger.assembler.take_lines())?;
    trace.finish();
    let elapsed = Duration::from_nanos(merger.now());
    let report = Report::of(&merger.assembler, elapsed, &merger.costs, merger.lost);
    write_scenario(&report, options)?;
    Ok(report)
}

/// Takes as many connections as there are senders, and reads each.
fn accept(listener: &Listener, senders: u32, to: &SyncSender<(u32, Event)>) {
    for machine in 0..senders {
        let stream = match listener.accept() {
            Ok(stream) => stream,
            Err(error) => {
                let _ = to.send((machine, Event::Ended(Err(error.into()))));
                continue;
            }
        };
        let to = to.clone();
        std::thread::spawn(move || {
            // Nobody listens any more only when the merger has failed.
            let end = wire::receive(io::BufReader::new(stream), |frame| {
                let _ = to.send((machine, Event::Frame(frame)));
            });
            let _ = to.send((machine, Event::Ended(end)));
        });
    }
}

#[derive(Default)]
struct Merger {
    assembler: Assembler,
    /// The assembler's number of a machine's ring.
    sources: HashMap<(u32, u32), usize>,
    /// Rings of a machine so far.
    rings: HashMap<u32, u32>,
    /// By source: what recording an event costs there, and how many there were.
    costs: Vec<(u64, u64)>,
    lost: u64,
    /// From the first frame on.
    start: Option<Instant>,
}

impl Merger {
    fn now(&self) -> u64 {
        let elapsed = self.start.map_or(Duration::ZERO, |start| start.elapsed());
        u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Handles what comes next, if anything does; how a sender ended, if one did.
    fn next(
        &mut self,
        events: &Receiver<(u32, Event)>,
    ) -> Result<Option<Result<(), FrameError>>, TraceError> {
        let mut ended = None;
        match events.recv_timeout(PAUSE) {
            Ok((machine, Event::Frame(frame))) => {
                self.start.get_or_insert_with(Instant::now);
                self.frame(machine, frame);
            }
            Ok((_, Event::Ended(end))) => ended = Some(end),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(TraceError::Merge(io::ErrorKind::UnexpectedEof.into()));
            }
        }
        self.assembler.settle(self.now());
        Ok(ended)
    }

    fn frame(&mut self, machine: u32, frame: Frame) {
        match frame {
            Frame::Process(writer) => {
                let ring = self.rings.entry(machine).or_default();
                self.sources.insert((machine, *ring), self.costs.len());
                *ring += 1;
                self.costs.push((writer.cost_ns, 0));
                self.assembler.source(Writer { machine, ..writer });
            }
            Frame::Records(ring, records) => {
                // Records of a process that was not introduced are no sender's of ours.
                let Some(&source) = self.sources.get(&(machine, ring)) else {
                    return;
                };
                // The sender wrote the keep-alives, the process nothing.
                let recorded = records
                    .iter()
                    .filter(|record| record.event != record::Event::KeepAlive);
                self.costs[source].1 += recorded.count() as u64;
                let now = self.now();
                for record in records {
                    self.assembler.record(source, record, now);
                }
            }
            Frame::End { lost } => self.lost += lost,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keep_alives_cost_the_process_nothing() {
        let mut merger = Merger::default();
        let writer = Writer {
            cost_ns: 100,
            ..Writer::default()
        };
        merger.frame(0, Frame::Process(writer));
        let record = |event| record::Record {
            thread: 1,
            cpu_ns: 0,
            time_ns: 0,
            event,
        };
        let records = [record::Event::MpiEnd, record::Event::KeepAlive].map(record);
        merger.frame(0, Frame::Records(0, records.to_vec()));
        assert_eq!(merger.costs, [(100, 1)]);
    }
}
