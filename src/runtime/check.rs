//! What a launch plan says, before a session believes it: plans come from files, and name addresses.

use super::error::SessionError;
use super::plan::{Address, InPlace, PLAN_VERSION, Plan, Port, Region};
use std::ops::Range;

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
    let alike = |p: &InPlace| of(&plan.inputs, p.input).is_some_and(|b| of(&plan.outputs, p.output) == Some(b));
    if !plan.in_place.iter().chain(plan.launches.iter().flat_map(|l| &l.copies)).all(alike) {
        return Err(SessionError::Plan("an output in the place of an input that is another one".into()));
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

/// Outputs in the caller's memory lie nowhere where inputs or other outputs do, but for those that may be in an input's place; each list
/// gives addresses, where they are the caller's.
pub(super) fn check_places(plan: &Plan, inputs: &[Option<u64>], outputs: &[Option<u64>]) -> Result<(), SessionError> {
    let places = |ports: &[Port], addresses: &[Option<u64>]| -> Vec<Option<Range<u64>>> {
        let place = |(port, address): (&Port, &Option<u64>)| {
            let bytes = port.bytes().unwrap_or(0) as u64;
            address.filter(|_| bytes > 0).map(|a| a..a.saturating_add(bytes))
        };
        ports.iter().zip(addresses).map(place).collect()
    };
    let (inputs, outputs) = (places(&plan.inputs, inputs), places(&plan.outputs, outputs));
    let meet = |a: &Range<u64>, b: &Range<u64>| a.start < b.end && b.start < a.end;
    for (o, place) in outputs.iter().enumerate().filter_map(|(o, place)| Some((o, place.as_ref()?))) {
        let in_place = |i: usize| plan.in_place.contains(&InPlace { input: i, output: o });
        let met = inputs.iter().enumerate().find(|(i, other)| {
            other.as_ref().is_some_and(|other| meet(place, other) && !(place == other && in_place(*i)))
        });
        let before = outputs[..o].iter().position(|other| other.as_ref().is_some_and(|other| meet(place, other)));
        let other = met.map(|(i, _)| &plan.inputs[i]).or(before.map(|b| &plan.outputs[b]));
        if let Some(other) = other {
            return Err(SessionError::Overlap { output: plan.outputs[o].name.clone(), other: other.name.clone() });
        }
    }
    Ok(())
}
