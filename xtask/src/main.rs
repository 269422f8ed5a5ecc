//! Build, test and release chores: `cargo xtask --help`.

mod abi;
mod bench;
mod bench_gpu;
mod cargo;
mod ci;
mod device;
mod dist;
mod examples;
mod gpu;
mod header;
mod loom;
mod python;
mod test;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Build, test and release chores of GSan")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    Bench(bench::Bench),
    BenchGpu(bench_gpu::BenchGpu),
    Ci(ci::Ci),
    Device(device::Device),
    Dist(dist::Dist),
    Examples(examples::Examples),
    Header(header::Header),
    Loom(loom::Loom),
    Python(python::Python),
    Test(test::Test),
    TestGpu(gpu::TestGpu),
}

fn main() -> ExitCode {
    match run(Arguments::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> Result<()> {
    match task {
        Task::Bench(task) => task.run(),
        Task::BenchGpu(task) => task.run(),
        Task::Ci(task) => task.run(),
        Task::Device(task) => task.run(),
        Task::Dist(task) => task.run(),
        Task::Examples(task) => task.run(),
        Task::Header(task) => task.run(),
        Task::Loom(task) => task.run(),
        Task::Python(task) => task.run(),
        Task::Test(task) => task.run(),
        Task::TestGpu(task) => task.run(),
    }
}
