//! Where a race ends the program. It ends the context, too: so each kind runs in a process of its own, this
//! program again.

use std::process::Command;
use std::sync::Arc;

use gsan_core::address::Records;
use gsan_device::{StateMemory, Variant};
use gsan_vmm::backend::cuda::CudaBackend;

use crate::cases;
use crate::device::Gpu;
use crate::kernels::Module;

/// In the process that is ended: which case it runs.
const CASE: &str = "GSAN_TEST_HALT";

/// With what that process exits when the driver has given the error of a failed assertion.
const ASSERTED: i32 = 42;

/// Runs a case until the driver gives an error; prints it, and what is left of the race.
fn run_to_death(backend: CudaBackend, ptx: &str, number: usize) -> ! {
    let (case, _) = &cases::halts()[number];
    let mut gpu = Gpu::new(&Arc::new(backend), Module::Pairs, ptx, Records::Four);
    gpu.halt_on_race();
    let (error, races) = gpu.run_to_death(case);
    for sides in races {
        let sides =
            sides.map(|side| side.map_or("?".into(), |at| format!("{}:{}", at.file, at.line)));
        println!("told {} {}", sides[0], sides[1]);
    }
    println!("error {error:?}");
    let asserted = error.is_some_and(|error| format!("{error:?}").contains("CUDA_ERROR_ASSERT"));
    // Nothing of the context can be given back.
    std::process::exit(if asserted { ASSERTED } else { 1 });
}

fn halts(number: usize) {
    let backend = match CudaBackend::new() {
        Ok(backend) => backend,
        Err(error) => return println!("skipped: {error}"),
    };
    let ptx = match Module::Pairs.ptx(Variant::new(StateMemory::Shared, Records::Four)) {
        Ok(ptx) => ptx,
        Err(error) => return println!("skipped: {error}"),
    };
    if std::env::var(CASE) == Ok(number.to_string()) {
        run_to_death(backend, &ptx, number);
    }
    // The other process has a context of its own.
    drop(backend);
    let name = std::thread::current().name().unwrap().to_owned();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &name, "--nocapture", "--test-threads", "1"])
        .env(CASE, number.to_string())
        .output()
        .unwrap();
    let said =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    let said = said.concat();
    let (case, message) = &cases::halts()[number];
    assert_eq!(
        output.status.code(),
        Some(ASSERTED),
        "{}: {said}",
        case.name
    );
    let cases::Expected::Exactly(told) = &case.expected else {
        panic!("{}: one race", case.name);
    };
    let [earlier, later] = told[0].lines;
    // `FILE:LINE: FUNCTION: block: [...], thread: [...] Assertion `MESSAGE` failed.`
    let assertion = said.lines().find(|line| line.contains("Assertion"));
    let assertion = assertion.unwrap_or_else(|| panic!("{}: {said}", case.name));
    assert!(
        assertion.contains(&format!("pairs.cu:{later}:")),
        "{assertion}"
    );
    assert!(assertion.contains(message), "{assertion}");
    // What lies in memory of the host outlives the context.
    // The test runner's own words may stand before it.
    let told = said.lines().find_map(|line| line.split_once("told "));
    let (_, told) = told.unwrap_or_else(|| panic!("{}: {said}", case.name));
    assert!(told.ends_with(&format!("pairs.cu:{later}")), "{told}");
    assert!(told.contains(&format!("pairs.cu:{earlier} ")), "{told}");
    println!("{assertion}");
}

#[test]
fn a_read_after_a_write_fails_an_assertion() {
    halts(0);
}

#[test]
fn a_write_after_a_read_fails_an_assertion() {
    halts(1);
}

#[test]
fn a_write_after_a_write_fails_an_assertion() {
    halts(2);
}
