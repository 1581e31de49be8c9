//! perturb: run unmodified programs on a network whose LogGP parameters are knobs.

use std::process::ExitCode;

fn main() -> ExitCode {
    perturb_sandbox::init_hook();
    perturb::cli::main()
}
