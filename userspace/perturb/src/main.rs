//! perturb: run unmodified programs on a network whose LogGP parameters are knobs.

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
    perturb::cli::main()
}
