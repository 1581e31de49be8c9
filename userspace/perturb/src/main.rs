//! perturb: run unmodified programs on a network whose LogGP parameters are knobs.
//!
//! This is the door: it reads the command line, goes into the sandbox where that is asked for, prints all that is said, and
//! turns what happened into exit codes.
//!
//! ```text
//! cli ──► apply, run, status, capture ────────────► perturb-emulator (this machine's emulations; private hosts)
//!   ├───► cli::machines ─────────────────────────► perturb-machines (the same on many machines, by ssh)
//!   ├───► top ────────────────────────────────────► perturb-serve (the client of an emulation's API)
//!   ├───► calibrate, measure, sweep, rto, tcp, … ─► perturb-experiments
//!   ├───► nfs ────────────────────────────────────► perturb-experiments (curve), perturb-workloads (load, serve)
//!   ├───► predict, locality, trace ───────────────► perturb-models, perturb-trace
//!   ├───► pattern, split_c ───────────────────────► perturb-workloads
//!   └───► reproduce ──► perturb-models, perturb-experiments, and the commands above as processes of their own
//! ```
//!
//! What results look like is in perturb-present.

#[macro_use]
mod say;

mod apply;
mod calibrate;
mod capture;
mod cli;
mod locality;
mod marks;
mod measure;
mod netem;
mod nfs;
mod pattern;
mod predict;
mod processes;
mod report;
mod reproduce;
mod rto;
mod split_c;
mod sweep;
mod tcp;
mod top;
mod trace;
mod voice;

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Err(error) = perturb_emulator::privileges::shed_borrowed() {
        eprintln!("perturb: giving up root's privileges: {error}");
        return ExitCode::FAILURE;
    }
    perturb_sandbox::init_hook();
    // One that has begun itself again (`/proc/self/exe`) is called `exe` otherwise: neither `pgrep perturb` would find it, nor
    // the other emulations of this machine. It fails on no kernel.
    let _ = nix::sys::prctl::set_name(c"perturb");
    cli::main()
}
