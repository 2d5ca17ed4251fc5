//! User objects: something of the program's that lives as long as graphs need it. Each reference is counted; with the
//! last one the program's destructor is called.

use crate::api::{INVALID, Result, put};
use crate::graph::graph;
use crate::op::{HostCall, Ptr};
use crate::state::{Table, lock};
use crate::types::*;
use std::collections::BTreeMap;
use std::ffi::{c_uint, c_void};
use std::sync::{Arc, Mutex};

/// Flag that is required: the destructor does not wait for the device.
const NO_DESTRUCTOR_SYNC: c_uint = 1;
/// Flag: references move from the caller to the graph.
const MOVE: c_uint = 1;

struct UserObject {
    destroy: HostCall,
    references: Mutex<u64>,
}

static OBJECTS: Table<Arc<UserObject>> = Table::new();

fn change(handle: hipUserObject_t, by: u64, more: bool) -> Result {
    let object = OBJECTS.get(handle).ok_or(INVALID)?;
    let last = {
        let mut n = lock(&object.references);
        // More references than there are cannot be given back.
        *n = if more { n.checked_add(by).ok_or(INVALID)? } else { n.saturating_sub(by) };
        *n == 0
    };
    if last {
        OBJECTS.remove(handle);
        object.destroy.run();
    }
    Ok(())
}

/// References that a graph or an instance holds, by handle.
#[derive(Default)]
pub struct Objects(BTreeMap<u64, u64>);

impl Clone for Objects {
    fn clone(&self) -> Objects {
        for (&handle, &count) in &self.0 {
            let _ = change(handle as hipUserObject_t, count, true);
        }
        Objects(self.0.clone())
    }
}

impl Drop for Objects {
    fn drop(&mut self) {
        for (&handle, &count) in &self.0 {
            let _ = change(handle as hipUserObject_t, count, false);
        }
    }
}

hip! {
    fn hipUserObjectCreate(place: *mut hipUserObject_t, object: *mut c_void, destroy: hipHostFn_t, references: c_uint,
        flags: c_uint) {
        if place.is_null() || destroy.is_none() || references == 0 || references > i32::MAX as u32
            || flags != NO_DESTRUCTOR_SYNC
        {
            return Err(INVALID);
        }
        let destroy = HostCall { function: destroy, argument: Ptr(object as u64) };
        put(place, OBJECTS.add(Arc::new(UserObject { destroy, references: Mutex::new(references.into()) })))
    }
    fn hipUserObjectRetain(object: hipUserObject_t, count: c_uint) {
        if object.is_null() || count == 0 || count > i32::MAX as u32 {
            return Err(INVALID);
        }
        // The last reference may have been given back already.
        if OBJECTS.get(object).is_none() { Ok(()) } else { change(object, count.into(), true) }
    }
    fn hipUserObjectRelease(object: hipUserObject_t, count: c_uint) {
        if object.is_null() || count == 0 || count > i32::MAX as u32 {
            return Err(INVALID);
        }
        // The last reference may have been given back already.
        if OBJECTS.get(object).is_none() { Ok(()) } else { change(object, count.into(), false) }
    }
    fn hipGraphRetainUserObject(handle: hipGraph_t, object: hipUserObject_t, count: c_uint, flags: c_uint) {
        let g = graph(handle)?;
        if count == 0 || count > i32::MAX as u32 || flags > MOVE || object.is_null() {
            return Err(INVALID);
        }
        if OBJECTS.get(object).is_none() {
            return Ok(());
        }
        if flags & MOVE == 0 {
            change(object, count.into(), true)?;
        }
        *lock(&g).objects.0.entry(object as u64).or_default() += u64::from(count);
        Ok(())
    }
    fn hipGraphReleaseUserObject(handle: hipGraph_t, object: hipUserObject_t, count: c_uint) {
        let g = graph(handle)?;
        let mut g = lock(&g);
        if count == 0 || count > i32::MAX as u32 || object.is_null() {
            return Err(INVALID);
        }
        let Some(held) = g.objects.0.get_mut(&(object as u64)) else { return Ok(()) };
        let given_back = (*held).min(count.into());
        *held -= given_back;
        drop(g);
        // As for a release without a graph.
        if OBJECTS.get(object).is_none() { Ok(()) } else { change(object, given_back, false) }
    }
}
