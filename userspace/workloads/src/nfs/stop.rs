//! A request to stop, seen by every part of a load.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::sync::Notify;

/// Once set, stays set. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    set: AtomicBool,
    news: Notify,
}

impl Stop {
    /// Asks everybody to stop.
    pub fn set(&self) {
        self.0.set.store(true, Ordering::Relaxed);
        self.0.news.notify_waiters();
    }

    /// Whether that was asked.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.set.load(Ordering::Relaxed)
    }

    /// Returns when it is.
    pub async fn wait(&self) {
        let news = self.0.news.notified();
        let mut news = std::pin::pin!(news);
        // Registered before looking, so a call of `set` in between is not missed.
        news.as_mut().enable();
        if !self.is_set() {
            news.await;
        }
    }
}
