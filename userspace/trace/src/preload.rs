//! What is preloaded into a traced program.

mod hook;
mod mpi;
mod process;
mod sockets;
mod sys;
mod writer;

pub use process::Layer;
