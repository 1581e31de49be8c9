//! A thread that keeps an emulation alive: it renews the lease, tells the pacer's figures, and looks whether others have
//! changed what the emulation needs. It neither reads nor writes a terminal, so that none can block it. A process that is
//! stopped or hangs as a whole loses its lease all the same.

use std::{
    os::fd::AsFd as _,
    sync::{Arc, Mutex, PoisonError},
    thread::{self, Builder, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use nix::{
    poll::{PollFd, PollFlags, ppoll},
    sys::{
        eventfd::{EfdFlags, EventFd},
        time::TimeSpec,
    },
};
use perturb_clock::now;
use perturb_dataplane::watch::Fault;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::{conduct::Lease, seam::Vital};

/// Time for notices to gather: one change often brings several.
const GATHER: Duration = Duration::from_millis(5);

/// What ends an emulation, or an interface's part of it.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// Somebody else has changed something.
    #[error("{0}")]
    Fault(Fault),
    /// The lease could not be renewed, or nothing could be looked at.
    #[error("the emulation cannot be kept up: {0:#}")]
    Failed(anyhow::Error),
}

/// What it is told.
#[derive(Clone, Copy, Debug)]
struct Orders {
    lease: Lease,
    /// Go on when an interface is lost: the others are still emulated.
    outlive: bool,
    end: bool,
}

/// The thread. Dropping it ends it; the lease runs out then.
pub struct Keeper {
    orders: Arc<Mutex<Orders>>,
    wake: Arc<EventFd>,
    troubles: UnboundedReceiver<Trouble>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Starts it. If `outlive`, the loss of an interface does not end what is emulated elsewhere.
    pub(crate) fn start(vital: Box<dyn Vital>, lease: Lease, outlive: bool) -> anyhow::Result<Self> {
        let orders = Arc::new(Mutex::new(Orders {
            lease,
            outlive,
            end: false,
        }));
        let wake = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)
            .map(Arc::new)
            .context("making an eventfd")?;
        let (say, troubles) = unbounded_channel();
        let kept = Kept {
            vital,
            orders: Arc::clone(&orders),
            wake: Arc::clone(&wake),
            say,
            over: false,
        };
        let thread = Builder::new()
            .name("perturb-keeper".into())
            .spawn(move || kept.run())
            .context("starting the thread that renews the lease")?;
        Ok(Self {
            orders,
            wake,
            troubles,
            thread: Some(thread),
        })
    }

    /// Another lease, from now on.
    pub fn set_lease(&self, lease: Lease) {
        self.change(|orders| orders.lease = lease);
    }

    /// Whether the loss of an interface does not end what is emulated elsewhere.
    pub fn set_outlive(&self, outlive: bool) {
        self.change(|orders| orders.outlive = outlive);
    }

    fn change(&self, change: impl FnOnce(&mut Orders)) {
        change(&mut self.orders.lock().unwrap_or_else(PoisonError::into_inner));
        // An error means that it is awake already.
        let _ = self.wake.write(1);
    }

    /// The next trouble.
    pub async fn trouble(&mut self) -> Trouble {
        self.troubles.recv().await.unwrap_or_else(ended)
    }
}

fn ended() -> Trouble {
    Trouble::Failed(anyhow::anyhow!("the thread that renews the lease has ended"))
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.change(|orders| orders.end = true);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            log::error!("the thread that renews the lease has panicked");
        }
    }
}

struct Kept {
    vital: Box<dyn Vital>,
    orders: Arc<Mutex<Orders>>,
    wake: Arc<EventFd>,
    say: UnboundedSender<Trouble>,
    /// Something was said: nothing more is looked at.
    over: bool,
}

impl Kept {
    fn run(mut self) {
        let mut emulates = true;
        loop {
            let orders = *self.orders.lock().unwrap_or_else(PoisonError::into_inner);
            if orders.end {
                return;
            }
            match self.round(orders, emulates) {
                Ok(None) => {}
                Ok(Some(fault)) => {
                    emulates = orders.outlive && fault.is_loss_of_interface();
                    self.give_notice(Trouble::Fault(fault), emulates);
                }
                Err(error) => {
                    emulates = false;
                    self.give_notice(Trouble::Failed(error), false);
                }
            }
            self.wait(orders.lease.period());
        }
    }

    fn round(&mut self, orders: Orders, emulates: bool) -> anyhow::Result<Option<Fault>> {
        if emulates {
            self.vital.set_lease(orders.lease.until(now()))?;
        }
        self.vital.publish()?;
        if self.over {
            return Ok(None);
        }
        self.vital.listen()?;
        self.vital.look()
    }

    /// Packets must not wait for whoever is told: they pass untouched at once.
    fn give_notice(&mut self, trouble: Trouble, emulates: bool) {
        if self.over {
            return;
        }
        self.over = true;
        if !emulates {
            // If this fails, the lease runs out by itself.
            let _ = self.vital.set_lease(0);
        }
        // Nobody listens any more if the emulation is being taken down.
        let _ = self.say.send(trouble);
    }

    /// Waits for a notice or an order, at most for a period.
    fn wait(&mut self, period: Duration) {
        let heard = {
            let mut ready = vec![PollFd::new(self.wake.as_fd(), PollFlags::POLLIN)];
            if !self.over {
                let notices = self.vital.notices().into_iter();
                ready.extend(notices.map(|notices| PollFd::new(notices, PollFlags::POLLIN)));
            }
            let begin = Instant::now();
            // EINTR and the like: the next round comes earlier.
            let _ = ppoll(&mut ready, Some(TimeSpec::from_duration(period)), None);
            begin.elapsed() < period && ready.iter().skip(1).any(|fd| fd.any().unwrap_or(true))
        };
        // An error means that nobody has written to it.
        let _ = self.wake.read();
        if heard {
            thread::sleep(GATHER.min(period));
        }
    }
}
