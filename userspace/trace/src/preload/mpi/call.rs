//! One call of MPI: what its hook records.

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::abi::{self, Abi, Address, Handle, STATUS};
use super::shape::Shape;
use crate::preload::process::{self, Layer};
use crate::preload::sys::Errno;
use crate::preload::writer::{self, Start};
use crate::record::{Collective, Event};

/// Between MPI_Init and MPI_Finalize.
static RUNNING: AtomicBool = AtomicBool::new(false);
/// Since MPI_Pcontrol(0).
static PAUSED: AtomicBool = AtomicBool::new(false);
/// Communicators that the collector knows.
static KNOWN: Mutex<Vec<Handle>> = Mutex::new(Vec::new());

thread_local! {
    /// MPI calls of this thread that have not returned: a library may call itself.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Set in the number of a request that is a matched message (MPI_Mprobe).
const MATCHED: u64 = 1 << 63;

/// Which language's arguments a hook has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    C,
    Fortran,
}

/// A call that has not returned yet. When it is dropped, the CPU time since it was made is left out.
pub(crate) struct Call {
    pub(crate) abi: Abi,
    outermost: bool,
    /// When it was made. Its events carry that CPU time.
    start: Start,
}

impl Call {
    pub(crate) fn enter() -> Self {
        let depth = DEPTH.get();
        DEPTH.set(depth + 1);
        let outermost = depth == 0;
        let start = if outermost {
            writer::call_begins();
            writer::start()
        } else {
            Start::default()
        };
        Self {
            abi: Abi::of_process(),
            outermost,
            start,
        }
    }

    /// Whether its events are wanted.
    pub(crate) fn is_recorded(&self) -> bool {
        self.outermost && RUNNING.load(Ordering::Relaxed) && !PAUSED.load(Ordering::Relaxed)
    }

    /// MPI_Pcontrol: level 0 stops recording, any other goes on with it, as if nothing had happened in between.
    pub(crate) fn controlled(&self, level: c_int) {
        let is_paused = level == 0;
        let was_paused = PAUSED.swap(is_paused, Ordering::Relaxed);
        if self.outermost && RUNNING.load(Ordering::Relaxed) && is_paused != was_paused {
            self.write(if is_paused { Event::Paused } else { Event::Resumed });
        }
    }

    fn write(&self, event: Event) {
        let _errno = Errno::save();
        writer::write(event, writer::counted(self.start.cpu_ns));
    }

    /// Of what sends: its receiver may have it before the call ends.
    fn write_at_start(&self, event: Event) {
        let _errno = Errno::save();
        writer::write_at(event, writer::counted(self.start.cpu_ns), self.start.time_ns);
    }

    /// MPI is initialized.
    pub(crate) fn initialized(&self) {
        if !writer::is_on() || RUNNING.load(Ordering::Relaxed) || process::layer() == Layer::Sockets {
            return;
        }
        process::is_mpi();
        let world = self.abi.world();
        let mut rank = 0;
        if abi::comm_rank(world, &raw mut rank) != 0 {
            return;
        }
        RUNNING.store(true, Ordering::Relaxed);
        let rank = rank.max(0).unsigned_abs();
        self.write(Event::MpiStart { rank });
        self.announce(world);
    }

    /// MPI is about to be finalized.
    pub(crate) fn finalizing(&self) {
        if RUNNING.load(Ordering::Relaxed) {
            self.write(Event::MpiEnd);
        }
        RUNNING.store(false, Ordering::Relaxed);
    }

    /// Tells the collector about a communicator, once.
    pub(crate) fn announce(&self, comm: Handle) {
        let comm = self.abi.handle(comm);
        if self.abi.is_null_communicator(comm) {
            return;
        }
        {
            let mut known = KNOWN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if known.contains(&comm) {
                return;
            }
            known.push(comm);
        }
        let mut is_inter = 0;
        abi::comm_test_inter(comm, &raw mut is_inter);
        let members = self.members(comm, is_inter != 0).unwrap_or_default();
        let communicator = comm as u64;
        self.write(Event::Communicator {
            groups: if is_inter == 0 { 1 } else { 2 },
            size: members.len() as u32,
            communicator,
        });
        for part in members.chunks(6) {
            self.write(Event::Members {
                count: part.len() as u16,
                communicator,
                ranks: filled(part),
            });
        }
    }

    /// Ranks in the world of those whom a communicator's ranks mean in point-to-point calls.
    fn members(&self, comm: Handle, is_inter: bool) -> Option<Vec<u32>> {
        let (mut group, mut world, mut size) = (0, 0, 0);
        let ok = |code: c_int| (code == 0).then_some(());
        ok(if is_inter {
            abi::comm_remote_group(comm, &raw mut group)
        } else {
            abi::comm_group(comm, &raw mut group)
        })?;
        ok(abi::comm_group(self.abi.world(), &raw mut world))?;
        ok(abi::group_size(group, &raw mut size))?;
        let ranks: Vec<c_int> = (0..size).collect();
        let mut translated = vec![0; ranks.len()];
        let code = abi::group_translate_ranks(group, size, ranks.as_ptr(), world, translated.as_mut_ptr());
        abi::group_free(&raw mut group);
        abi::group_free(&raw mut world);
        ok(code)?;
        Some(translated.into_iter().map(|rank| rank as u32).collect())
    }

    /// A communicator is freed: its handle may mean another one soon.
    pub(crate) fn freed(&self, comm: Handle) {
        let comm = self.abi.handle(comm);
        KNOWN
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .retain(|known| *known != comm);
        self.write(Event::CommunicatorFreed {
            communicator: comm as u64,
        });
    }

    fn known(&self, comm: Handle) -> u64 {
        self.announce(comm);
        self.abi.handle(comm) as u64
    }

    /// What a send and its preparation tell; none if they are to nobody.
    fn send(&self, comm: Handle, peer: c_int, request: Handle) -> Option<(u32, u64, u64)> {
        (peer != self.abi.null_process()).then(|| (peer as u32, self.known(comm), self.request(request)))
    }

    fn request(&self, request: Handle) -> u64 {
        self.abi.handle(request) as u64
    }

    /// A message is sent; `request` is 0 if the call waits.
    pub(crate) fn sent(&self, comm: Handle, peer: c_int, tag: c_int, bytes: u64, request: Handle) {
        if let Some((peer, communicator, request)) = self.send(comm, peer, request) {
            self.write_at_start(Event::Send {
                peer,
                tag,
                communicator,
                bytes,
                request,
            });
        }
    }

    /// A send is prepared.
    pub(crate) fn prepared(&self, comm: Handle, peer: c_int, tag: c_int, bytes: u64, request: Handle) {
        if let Some((peer, communicator, request)) = self.send(comm, peer, request) {
            self.write(Event::SendInit {
                peer,
                tag,
                communicator,
                bytes,
                request,
            });
        }
    }

    /// A receive of one sender's messages with one tag begins: which message that is, is known already, and whoever follows
    /// the trace need not wait with this process.
    pub(crate) fn receives(&self, comm: Handle, peer: c_int, tag: c_int) {
        if let (Ok(peer), 0..) = (u32::try_from(peer), tag) {
            let communicator = self.known(comm);
            self.write(Event::Received {
                peer,
                tag,
                communicator,
            });
        }
    }

    /// A message is received, of a sender or with a tag that was not known before.
    pub(crate) fn received(&self, comm: Handle, peer: c_int, tag: c_int, spare: &Spare) {
        if peer >= 0 && tag >= 0 {
            return;
        }
        if let Some((peer, tag)) = spare.source_and_tag(self.abi, 0) {
            let communicator = self.known(comm);
            self.write(Event::Received {
                peer: peer.unsigned_abs(),
                tag,
                communicator,
            });
        }
    }

    /// A receive is posted.
    pub(crate) fn posted(&self, comm: Handle, request: Handle) {
        let (communicator, request) = (self.known(comm), self.request(request));
        self.write(Event::Posted {
            communicator,
            request,
        });
    }

    /// A persistent receive is prepared.
    pub(crate) fn receive_prepared(&self, comm: Handle, request: Handle) {
        let (communicator, request) = (self.known(comm), self.request(request));
        self.write(Event::ReceiveInit {
            communicator,
            request,
        });
    }

    /// A message is matched: as a receive that is posted.
    pub(crate) fn matched(&self, comm: Handle, message: Handle) {
        let (communicator, request) = (self.known(comm), self.request(message) | MATCHED);
        self.write(Event::Posted {
            communicator,
            request,
        });
    }

    /// Persistent requests are started.
    pub(crate) fn started(&self, requests: &[Handle]) {
        for request in requests {
            self.write_at_start(Event::Started {
                request: *request as u64,
            });
        }
    }

    /// The `index`-th of the requests that were held is complete, its status the `place`-th.
    pub(crate) fn complete(&self, spare: &Spare, index: usize, place: usize) {
        let Some(&request) = spare.requests.get(index) else {
            return;
        };
        if self.abi.is_null_request(request) {
            return;
        }
        // A send's status may hold anything; the collector knows which requests are receives.
        let (peer, tag) = spare.source_and_tag(self.abi, place).unwrap_or((-1, 0));
        let request = request as u64;
        self.write(Event::Complete { peer, tag, request });
    }

    /// A matched message is received.
    pub(crate) fn matched_received(&self, spare: &Spare) {
        if let (Some(&message), Some((peer, tag))) =
            (spare.requests.first(), spare.source_and_tag(self.abi, 0))
        {
            let request = message as u64 | MATCHED;
            self.write(Event::Complete { peer, tag, request });
        }
    }

    /// A receive of a matched message is posted: the message's entry becomes the request's.
    pub(crate) fn matched_posted(&self, spare: &Spare, request: Handle) {
        if let Some(&message) = spare.requests.first() {
            let (message, request) = (message as u64 | MATCHED, self.request(request));
            self.write(Event::MatchedPosted { message, request });
        }
    }

    /// A collective operation, or its start if it has a request.
    pub(crate) fn collective(&self, which: Collective, comm: Handle, shape: &Shape, request: Handle) {
        let communicator = self.known(comm);
        for part in shape.sizes.chunks(8) {
            self.write(Event::Sizes {
                count: part.len() as u16,
                sizes: filled(part),
            });
        }
        self.write_at_start(Event::Collective {
            which: which as u16,
            root: shape.root as u32,
            communicator,
            bytes: shape.bytes,
            request: self.request(request),
        });
    }

    /// This process's rank in a communicator.
    pub(crate) fn rank(&self, comm: Handle) -> c_int {
        let mut rank = -1;
        abi::comm_rank(comm, &raw mut rank);
        rank
    }

    /// Ranks that a collective over a communicator concerns.
    pub(crate) fn size(&self, comm: Handle) -> usize {
        let mut size = 0;
        abi::comm_size(comm, &raw mut size);
        usize::try_from(size).unwrap_or(0)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get().saturating_sub(1));
        if self.outermost {
            let _errno = Errno::save();
            writer::call_ends(writer::cpu_at_end().saturating_sub(self.start.cpu_ns));
        }
    }
}

/// A part of a list, and zeros behind it.
fn filled<const N: usize>(part: &[u32]) -> [u32; N] {
    std::array::from_fn(|index| part.get(index).copied().unwrap_or(0))
}

/// What a call needs beside the caller's memory: the requests before it made them void, and a status where the
/// caller wants none.
pub(crate) struct Spare {
    requests: Vec<Handle>,
    status: Address,
    own: [u64; STATUS / 8],
    many: Vec<u64>,
}

impl Spare {
    /// For a call that is not recorded.
    pub(crate) fn none() -> Self {
        Self {
            requests: Vec::new(),
            status: std::ptr::null_mut(),
            own: [0; STATUS / 8],
            many: Vec::new(),
        }
    }

    /// For a call that fills in `count` statuses.
    pub(crate) fn statuses(mut self, language: Language, abi: Abi, status: Address, count: c_int) -> Self {
        let ignored = match language {
            Language::C => abi.ignores(status),
            Language::Fortran => abi::ignored_by_fortran(status),
        };
        self.status = status;
        if ignored {
            let count = usize::try_from(count).unwrap_or(0);
            self.status = if count <= 1 {
                std::ptr::null_mut()
            } else {
                self.many = vec![0; (count * abi.status_size()).div_ceil(8)];
                self.many.as_mut_ptr().cast()
            };
        }
        self
    }

    /// Keeps requests.
    pub(crate) fn requests(mut self, requests: Requests, count: c_int) -> Self {
        self.requests = requests.first(count);
        self
    }

    /// What to pass for the caller's status.
    pub(crate) fn pointer(&mut self, callers: Address, is_recorded: bool) -> Address {
        if !is_recorded {
            return callers;
        }
        if self.status.is_null() {
            self.status = self.own.as_mut_ptr().cast();
        }
        self.status
    }

    /// The requests that were kept.
    pub(crate) fn kept(&self) -> &[Handle] {
        &self.requests
    }

    fn source_and_tag(&self, abi: Abi, place: usize) -> Option<(c_int, c_int)> {
        if self.status.is_null() {
            return None;
        }
        // SAFETY: the call has filled in its statuses, of which this is one.
        let found = unsafe { abi.source_and_tag(self.status.byte_add(place * abi.status_size())) };
        found.filter(|(source, _)| *source >= 0)
    }
}

/// A pointer to requests, or to a message.
#[derive(Clone, Copy)]
pub(crate) struct Requests {
    pub(crate) language: Language,
    pub(crate) array: Address,
    pub(crate) are_messages: bool,
}

impl Requests {
    /// The first of them.
    pub(crate) fn get(self) -> Handle {
        self.first(1).first().copied().unwrap_or(0)
    }

    fn first(self, count: c_int) -> Vec<Handle> {
        let abi = Abi::of_process();
        let count = usize::try_from(count).unwrap_or(0);
        (0..count)
            .map(|index| match self.language {
                // SAFETY: the caller passes that many handles.
                Language::C => abi.handle(unsafe { abi.handle_at(self.array, index) }),
                Language::Fortran => {
                    // SAFETY: Fortran's handles are integers.
                    let number = unsafe { self.array.cast::<c_int>().add(index).read() };
                    let number = number as isize as Handle;
                    abi.handle(if self.are_messages {
                        abi::message_from_fortran(number)
                    } else {
                        abi::request_from_fortran(number)
                    })
                }
            })
            .collect()
    }
}
