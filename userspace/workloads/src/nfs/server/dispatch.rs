//! From an RPC message to its reply: programs, versions, procedures, and repeated calls.
//!
//! Model: NFS version 3 and its mount protocol at the same port. Credentials are read and not
//! checked. A UDP client that got no reply sends the call again with the same XID; for procedures
//! that change names the second execution would fail (the file exists, or is gone), so the latest
//! such replies are remembered by address and XID and sent again (a duplicate request cache, Juszczak,
//! "Improving the performance and correctness of an NFS server", USENIX 1989).

use std::{
    net::SocketAddr,
    num::NonZeroUsize,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use lru::LruCache;
use nfs3_types::{
    mount::{MOUNT_PROGRAM, dirpath, export_node, exports, fhandle3, mountres3, mountres3_ok, mountstat3},
    xdr_codec::{List, Opaque, Pack},
};
use strum::VariantArray as _;

use super::{
    Config, Tally,
    memory::FileSystem,
    procedures::{self, Unexecuted},
    service::{Queues, Touch},
};
use crate::nfs::{
    client::Transport,
    procedure::Procedure,
    rpc::{self, AUTH_SYS, Call, Refusal},
    xdr::XdrError,
};

/// Replies remembered for repeated calls.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(4096).expect("a positive constant");
/// Sizes of transfers are counted in KiB up to this.
const SIZES: usize = 64;

pub(super) struct Dispatcher {
    export: String,
    file_system: Mutex<FileSystem>,
    queues: Option<Mutex<Queues>>,
    repeats: Mutex<LruCache<(SocketAddr, u32), Vec<u8>>>,
    counts: Counts,
}

struct Counts {
    calls: [AtomicU64; Procedure::VARIANTS.len()],
    failures: AtomicU64,
    repeated: AtomicU64,
    reads: [AtomicU64; SIZES + 1],
    writes: [AtomicU64; SIZES + 1],
}

impl Dispatcher {
    pub(super) fn new(config: &Config, instance: u64) -> Self {
        let queues =
            (!config.service.is_instant()).then(|| Mutex::new(Queues::new(config.service, Instant::now())));
        Self {
            export: config.export.clone(),
            file_system: Mutex::new(FileSystem::new(config.capacity, config.read_only, instance)),
            queues,
            repeats: Mutex::new(LruCache::new(REMEMBERED)),
            counts: Counts {
                calls: std::array::from_fn(|_| AtomicU64::new(0)),
                failures: AtomicU64::new(0),
                repeated: AtomicU64::new(0),
                reads: std::array::from_fn(|_| AtomicU64::new(0)),
                writes: std::array::from_fn(|_| AtomicU64::new(0)),
            },
        }
    }

    /// Whether replies leave at once.
    pub(super) fn is_instant(&self) -> bool {
        self.queues.is_none()
    }

    /// Executes a call, appends its reply to `out`, and says when the reply may go if not at once.
    /// What is no call at all gets no reply.
    pub(super) fn handle(
        &self,
        message: &[u8],
        peer: SocketAddr,
        transport: Transport,
        out: &mut Vec<u8>,
    ) -> Result<Option<Instant>, XdrError> {
        let call = rpc::call(message)?;
        let procedure = Some(call.procedure)
            .filter(|_| call.program == rpc::NFS)
            .and_then(Procedure::from_repr);
        let repeatable = transport == Transport::Udp && procedure.is_some_and(Procedure::changes_names);
        if repeatable && let Some(reply) = lock(&self.repeats).get(&(peer, call.xid)) {
            self.counts.repeated.fetch_add(1, Ordering::Relaxed);
            out.extend_from_slice(reply);
            return Ok(None);
        }
        let start = out.len();
        let touch = match self.execute(&call, procedure, out) {
            Ok(touch) => touch,
            Err(refusal) => {
                out.truncate(start);
                rpc::put_reply(out, call.xid, Some(refusal));
                return Ok(None);
            }
        };
        if repeatable {
            lock(&self.repeats).put((peer, call.xid), out[start..].to_vec());
        }
        // Mounting is no part of the load.
        let queues = self.queues.as_ref().filter(|_| call.program == rpc::NFS);
        Ok(queues.map(|queues| lock(queues).departure(Instant::now(), touch)))
    }

    pub(super) fn objects(&self) -> u64 {
        lock(&self.file_system).room().objects
    }

    pub(super) fn set_capacity(&self, bytes: u64) {
        lock(&self.file_system).set_capacity(bytes);
    }

    pub(super) fn tally(&self) -> Tally {
        let all = |counts: &[AtomicU64]| counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        Tally {
            calls: Procedure::VARIANTS
                .iter()
                .copied()
                .zip(&self.counts.calls)
                .map(|(procedure, count)| (procedure, count.load(Ordering::Relaxed)))
                .filter(|(_, count)| *count > 0)
                .collect(),
            failures: self.counts.failures.load(Ordering::Relaxed),
            repeated: self.counts.repeated.load(Ordering::Relaxed),
            read_kib: all(&self.counts.reads),
            write_kib: all(&self.counts.writes),
        }
    }

    fn execute(
        &self,
        call: &Call<'_>,
        procedure: Option<Procedure>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Touch>, Refusal> {
        if call.rpc_version != rpc::RPC_VERSION {
            return Err(Refusal::RpcMismatch {
                low: rpc::RPC_VERSION,
                high: rpc::RPC_VERSION,
            });
        }
        for served in [rpc::NFS, rpc::MOUNT] {
            if call.program.number == served.number && call.program.version != served.version {
                return Err(Refusal::ProgramMismatch {
                    low: served.version,
                    high: served.version,
                });
            }
        }
        rpc::put_reply(out, call.xid, None);
        match call.program {
            rpc::NFS => self.nfs(call, procedure.ok_or(Refusal::ProcedureUnavailable)?, out),
            rpc::MOUNT => self.mount(call, out).map(|()| None),
            _ => Err(Refusal::ProgramUnavailable),
        }
    }

    fn nfs(
        &self,
        call: &Call<'_>,
        procedure: Procedure,
        out: &mut Vec<u8>,
    ) -> Result<Option<Touch>, Refusal> {
        let executed = procedures::execute(&mut lock(&self.file_system), procedure, call.arguments, out);
        let executed = executed.map_err(|reason| match reason {
            Unexecuted::Garbage => Refusal::GarbageArguments,
            Unexecuted::Unavailable => Refusal::ProcedureUnavailable,
        })?;
        self.counts.calls[procedure.number() as usize].fetch_add(1, Ordering::Relaxed);
        if executed.failed {
            self.counts.failures.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(bytes) = executed.transfer {
            let sizes = if procedure == Procedure::Write {
                &self.counts.writes
            } else {
                &self.counts.reads
            };
            sizes[(bytes.div_ceil(1024) as usize).min(SIZES)].fetch_add(1, Ordering::Relaxed);
        }
        Ok(executed.touch)
    }

    fn mount(&self, call: &Call<'_>, out: &mut Vec<u8>) -> Result<(), Refusal> {
        let mut arguments = call.arguments;
        let mut path = || arguments.opaque(1024).map_err(|_| Refusal::GarbageArguments);
        let packed = match call.procedure {
            number
                if number == MOUNT_PROGRAM::MOUNTPROC3_NULL as u32
                    || number == MOUNT_PROGRAM::MOUNTPROC3_UMNTALL as u32 =>
            {
                Ok(0)
            }
            number if number == MOUNT_PROGRAM::MOUNTPROC3_UMNT as u32 => path().map(|_| Ok(0))?,
            number if number == MOUNT_PROGRAM::MOUNTPROC3_MNT as u32 => {
                let wanted = path()?;
                let result = if wanted == self.export.as_bytes() {
                    let fs = lock(&self.file_system);
                    let handle = fs.handle(fs.root());
                    mountres3::Ok(mountres3_ok {
                        fhandle: fhandle3(handle.data),
                        auth_flavors: vec![AUTH_SYS],
                    })
                } else {
                    mountres3::Err(mountstat3::MNT3ERR_NOENT)
                };
                result.pack(out)
            }
            number if number == MOUNT_PROGRAM::MOUNTPROC3_EXPORT as u32 => {
                let node = export_node {
                    ex_dir: dirpath(Opaque::borrowed(self.export.as_bytes())),
                    ex_groups: List::default(),
                };
                let list: exports<'_, '_> = List(vec![node]);
                list.pack(out)
            }
            _ => return Err(Refusal::ProcedureUnavailable),
        };
        packed.map(drop).map_err(|_| Refusal::System)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
