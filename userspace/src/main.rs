//! perturb: run unmodified programs on a network whose LogGP parameters are knobs.

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Err(error) = perturb::privileges::shed_borrowed() {
        eprintln!("perturb: giving up root's privileges: {error}");
        return ExitCode::FAILURE;
    }
    perturb_sandbox::init_hook();
    perturb::cli::main()
}
