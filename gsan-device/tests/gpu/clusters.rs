//! Clusters, which only a GPU has.

use crate::cases::Argument::{Buffer, Number};
use crate::cases::{Case, Expected, Launch};
use crate::kernels::Module;

/// CTAs of clusters of `size` meet `rounds` times, and the checks are told or not.
pub(crate) fn cluster_rounds(size: u32, clusters: u32, rounds: u32, told: bool) -> Case {
    let module = Module::Clusters;
    let lines = ["cluster write", "cluster read"].map(|mark| module.line(mark));
    let grid = size * clusters;
    Case {
        name: format!("{clusters} clusters of {size}, {rounds} rounds, told: {told}"),
        module,
        // 128 bytes of scratch memory a cluster.
        buffers: vec![grid, 32 * clusters, 64],
        ones: None,
        launches: vec![Launch {
            kernel: "cluster_rounds",
            stream: 0,
            cluster: size,
            grid,
            block: 64,
            arguments: vec![
                Buffer(0),
                Buffer(1),
                Buffer(2),
                Number(rounds),
                Number(told.into()),
            ],
        }],
        expected: match told {
            true => Expected::Exactly(vec![]),
            false => Expected::Some(lines.to_vec()),
        },
        result: Some((0, vec![rounds - 1; grid as usize])),
    }
}
