//! What a launch plan says, before a session believes it: plans come from files, and name addresses.

use super::error::SessionError;
use super::plan::{Address, PLAN_VERSION, Plan, Port, Region};

/// A tensor of a plan that cannot be.
pub(super) fn bad_port(port: &Port) -> SessionError {
    SessionError::Plan(format!("tensor {} has type {} and shape {:?}", port.name, port.dtype, port.shape))
}

/// Plans read from a file may say anything: they must have the same inputs and outputs, but for their extents.
pub(super) fn check_plans(plans: &[Plan], weights: u64) -> Result<(), SessionError> {
    let Some(first) = plans.first() else { return Err(SessionError::Plan("it is empty".into())) };
    let names = |ports: &[Port]| ports.iter().map(|p| (p.name.clone(), p.dtype.clone())).collect::<Vec<_>>();
    for plan in plans {
        check_plan(plan, weights)?;
        let same = plan.target == first.target
            && names(&plan.inputs) == names(&first.inputs)
            && names(&plan.outputs) == names(&first.outputs);
        if !same {
            return Err(SessionError::Plan("its parts are of different models".into()));
        }
    }
    Ok(())
}

/// Every address that a plan names must lie within its region.
fn check_plan(plan: &Plan, weights: u64) -> Result<(), SessionError> {
    if plan.version != PLAN_VERSION {
        return Err(SessionError::Plan(format!(
            "it has version {}, this barewave reads version {}",
            plan.version, PLAN_VERSION
        )));
    }
    if plan.weights_bytes != weights {
        return Err(SessionError::Plan(format!("{} bytes of weights, it says {}", weights, plan.weights_bytes)));
    }
    for port in plan.inputs.iter().chain(&plan.outputs) {
        port.bytes().ok_or_else(|| bad_port(port))?;
    }
    let of = |ports: &[Port], i: usize| ports.get(i).and_then(Port::bytes).map(|b| b as u64);
    let size = |a: &Address| match a.region {
        Region::Arena => Some(plan.arena_bytes),
        Region::Weights => Some(plan.weights_bytes),
        Region::Counters => Some(plan.counter_bytes),
        Region::Input(i) => of(&plan.inputs, i),
        Region::Output(i) => of(&plan.outputs, i),
        Region::Value => Some(u64::MAX),
    };
    let inside = |(a, bytes): &(Address, u64)| {
        size(a).is_some_and(|s| a.offset.checked_add(*bytes).is_some_and(|end| a.region != Region::Value && end <= s))
    };
    if let Some((a, bytes)) = plan.joined.iter().find(|part| !inside(part)) {
        return Err(SessionError::Plan(format!("a tensor of {bytes} bytes at {} outside of its region", a.offset)));
    }
    for launch in &plan.launches {
        if let Some(a) = launch.args.iter().find(|a| size(a).is_none_or(|s| a.offset > s)) {
            return Err(SessionError::Plan(format!(
                "{}: argument at {} outside of its region",
                launch.kernel, a.offset
            )));
        }
    }
    Ok(())
}
