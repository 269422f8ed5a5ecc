//! The names of special registers (PTX ISA, "Special Registers").

use crate::program::operand::{Axis, Special};
use crate::syntax::ast::Component;

/// What a name of a special register stands for.
pub(super) enum Found {
    /// The register, and how many bits it has.
    Register(Special, u32),
    /// A vector: one component must be named.
    NeedsComponent,
    /// It has no such component.
    NoComponent,
}

/// The special register of that name; `None` if there is none.
pub(super) fn special(name: &str, component: Option<Component>) -> Option<Found> {
    let vector: fn(Axis) -> Special = match name {
        "%tid" => Special::Tid,
        "%ntid" => Special::Ntid,
        "%ctaid" => Special::Ctaid,
        "%nctaid" => Special::Nctaid,
        "%clusterid" => Special::ClusterId,
        "%nclusterid" => Special::NClusterId,
        "%cluster_ctaid" => Special::ClusterCtaid,
        "%cluster_nctaid" => Special::ClusterNctaid,
        _ => return scalar(name, component),
    };
    let axis = match component {
        Some(Component::X) => Axis::X,
        Some(Component::Y) => Axis::Y,
        Some(Component::Z) => Axis::Z,
        Some(Component::W) => return Some(Found::Register(Special::Zero, 32)),
        None => return Some(Found::NeedsComponent),
    };
    Some(Found::Register(vector(axis), 32))
}

fn scalar(name: &str, component: Option<Component>) -> Option<Found> {
    let (register, bits) = match name {
        "%laneid" => (Special::LaneId, 32),
        "%warpid" => (Special::WarpId, 32),
        "%nwarpid" => (Special::NWarpId, 32),
        "%smid" => (Special::SmId, 32),
        "%nsmid" => (Special::NSmId, 32),
        "%gridid" => (Special::GridId, 64),
        "%is_explicit_cluster" => (Special::IsExplicitCluster, 1),
        "%cluster_ctarank" => (Special::ClusterCtarank, 32),
        "%cluster_nctarank" => (Special::ClusterNctarank, 32),
        "%lanemask_eq" => (Special::LanemaskEq, 32),
        "%lanemask_le" => (Special::LanemaskLe, 32),
        "%lanemask_lt" => (Special::LanemaskLt, 32),
        "%lanemask_ge" => (Special::LanemaskGe, 32),
        "%lanemask_gt" => (Special::LanemaskGt, 32),
        "%clock" => (Special::Clock, 32),
        "%clock_hi" => (Special::ClockHi, 32),
        "%clock64" => (Special::Clock64, 64),
        "%globaltimer" => (Special::GlobalTimer, 64),
        "%globaltimer_lo" => (Special::GlobalTimerLo, 32),
        "%globaltimer_hi" => (Special::GlobalTimerHi, 32),
        "%total_smem_size" => (Special::TotalSmemSize, 32),
        "%dynamic_smem_size" => (Special::DynamicSmemSize, 32),
        "%aggr_smem_size" => (Special::AggrSmemSize, 32),
        "%current_graph_exec" => (Special::Zero, 64),
        "%reserved_smem_offset_begin"
        | "%reserved_smem_offset_end"
        | "%reserved_smem_offset_cap"
        | "%reserved_smem_offset_0"
        | "%reserved_smem_offset_1" => (Special::Zero, 32),
        _ => {
            let numbered = |prefix: &str, limit: u32| {
                name.strip_prefix(prefix)
                    .and_then(|number| number.parse().ok())
                    .is_some_and(|number: u32| number < limit)
            };
            if numbered("%envreg", 32) || numbered("%pm", 8) {
                (Special::Zero, 32)
            } else {
                return None;
            }
        }
    };
    Some(match component {
        None => Found::Register(register, bits),
        Some(_) => Found::NoComponent,
    })
}
