//! Why a sweep's directory cannot be used.

use std::{io, path::PathBuf};

/// Why a sweep's directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file.
    #[error("{action} {}: {source}", .path.display())]
    File {
        /// What was tried.
        action: &'static str,
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// It has runs already.
    #[error("{} holds a sweep already; `--resume` goes on with it, or name another directory with --out", .0.display())]
    Taken(PathBuf),
    /// There is nothing to go on with.
    #[error("{} holds no sweep to resume; leave --resume out", .0.display())]
    Nothing(PathBuf),
    /// The experiment was changed.
    #[error(
        "{} holds a sweep of another experiment, or of another part of it; its runs cannot be joined with this one's: \
         name another directory with --out", .0.display()
    )]
    Different(PathBuf),
    /// It was made otherwise.
    #[error(
        "{}: what was measured there and what would be here cannot be joined, for these differ: {what}; go on there with the same, or \
         name another directory with --out", .path.display()
    )]
    Unlike {
        path: PathBuf,
        /// And how.
        what: String,
    },
    /// Somebody has changed a network.
    #[error(
        "{} is not the network that the experiment asks for; remove it, and `--resume` writes it again, or change the \
         experiment and name another directory with --out", .0.display()
    )]
    Edited(PathBuf),
    /// Another process works on it.
    #[error("{}: another process works on this sweep", .0.display())]
    Busy(PathBuf),
    /// A line that is no record.
    #[error("{}, line {line}: {source}", .path.display())]
    Damaged {
        path: PathBuf,
        /// From 1.
        line: usize,
        source: serde_json::Error,
    },
}
