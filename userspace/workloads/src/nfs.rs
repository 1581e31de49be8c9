//! NFS version 3: a load in the manner of SPECsfs, a server to put it on, and the response-time curve.
//!
//! Model: `load` sends RPCs of a given mix at a given rate from its own client (no kernel mount in
//! between, so what is measured is the server and the network), and reports response time over
//! delivered throughput. `server` keeps real bytes in memory and can impose the service times of a
//! queueing model. `curve` repeats a load at rising rates and summarizes the response-time curve.
//! Nothing here knows whether the network in between is emulated.
//! What is lacking: NFS version 4, locking, Kerberos.

mod arrivals;
pub mod client;
pub mod curve;
pub mod data_set;
pub mod load;
pub mod mix;
mod operation;
mod planner;
pub mod procedure;
pub mod record;
mod rpc;
pub mod server;
mod sizes;
mod stop;
mod xdr;

pub use stop::Stop;
