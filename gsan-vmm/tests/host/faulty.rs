//! A backend that fails when it is told to, and keeps count of what was handed out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};

use gsan_vmm::backend::{
    Backend, BackendError, Device, DeviceInfo, Failure, FenceId, FreeMemory, HandleKind, MemoryId,
    Pinned, Result, SharedHandle, Stream,
};

/// Passes calls on to `inner`, apart from those that are to fail.
pub(crate) struct Faulty<B> {
    pub(crate) inner: B,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Calls until the next fault, and how many there are in a row; 0: none.
    until: u64,
    faults: u64,
    calls: u64,
    reservations: BTreeMap<u64, u64>,
    memory: BTreeSet<MemoryId>,
    mappings: BTreeMap<u64, u64>,
    fences: BTreeSet<FenceId>,
    /// Who may access a mapping.
    allowed: BTreeMap<u64, Vec<Device>>,
    /// Devices that do not reach others: from, owner.
    cut_off: BTreeSet<(Device, Device)>,
}

impl<B: Backend> Faulty<B> {
    pub(crate) fn new(inner: B) -> Faulty<B> {
        Faulty {
            inner,
            state: Mutex::default(),
        }
    }

    /// Lets the call after the next `until` fail, and `faults - 1` more after it.
    pub(crate) fn fail(&self, until: u64, faults: u64) {
        let mut state = self.state();
        (state.until, state.faults) = (until, faults);
    }

    /// Cuts the link by which `from` reaches the memory of `owner`.
    pub(crate) fn cut_off(&self, from: Device, owner: Device) {
        self.state().cut_off.insert((from, owner));
    }

    /// Who may access what is mapped at `address`.
    pub(crate) fn allowed(&self, address: u64) -> Option<Vec<Device>> {
        self.state().allowed.get(&address).cloned()
    }

    /// How many calls were made that can fail.
    pub(crate) fn calls(&self) -> u64 {
        self.state().calls
    }

    /// What is mapped now: addresses and bytes.
    pub(crate) fn mappings(&self) -> BTreeMap<u64, u64> {
        self.state().mappings.clone()
    }

    pub(crate) fn memory_count(&self) -> usize {
        self.state().memory.len()
    }

    pub(crate) fn reservation_count(&self) -> usize {
        self.state().reservations.len()
    }

    /// Fails unless everything that was handed out has been given back.
    pub(crate) fn assert_nothing_left(&self) {
        let state = self.state();
        assert!(state.mappings.is_empty(), "mapped: {:x?}", state.mappings);
        assert!(state.memory.is_empty(), "memory: {:?}", state.memory);
        assert!(
            state.reservations.is_empty(),
            "reserved: {:x?}",
            state.reservations
        );
        assert!(state.fences.is_empty(), "fences: {:?}", state.fences);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn fault(&self, call: &'static str) -> Result<()> {
        tracing::trace!(call, "a call of the backend");
        let mut state = self.state();
        state.calls += 1;
        if state.faults == 0 {
            return Ok(());
        }
        if state.until > 0 {
            state.until -= 1;
            return Ok(());
        }
        state.faults -= 1;
        // Out of memory takes paths of its own, so both kinds come up.
        let failure = [Failure::OutOfMemory, Failure::Other][(state.calls % 2) as usize];
        Err(BackendError::new(call, failure, "a fault was injected"))
    }
}

impl<B: Backend> Backend for Faulty<B> {
    fn devices(&self) -> &[DeviceInfo] {
        self.inner.devices()
    }

    fn granularity(&self) -> u64 {
        self.inner.granularity()
    }

    fn reaches(&self, from: Device, owner: Device) -> bool {
        let cut_off = self.state().cut_off.contains(&(from, owner));
        !cut_off && self.inner.reaches(from, owner)
    }

    fn free_memory(&self, device: Device) -> Result<FreeMemory> {
        self.fault("free_memory")?;
        self.inner.free_memory(device)
    }

    fn reserve(&self, bytes: u64, alignment: u64) -> Result<u64> {
        self.fault("reserve")?;
        let address = self.inner.reserve(bytes, alignment)?;
        self.state().reservations.insert(address, bytes);
        Ok(address)
    }

    fn unreserve(&self, address: u64, bytes: u64) -> Result<()> {
        self.fault("unreserve")?;
        assert_eq!(self.state().reservations.remove(&address), Some(bytes));
        self.inner.unreserve(address, bytes)
    }

    fn create(&self, device: Device, bytes: u64, kind: HandleKind) -> Result<MemoryId> {
        self.fault("create")?;
        let memory = self.inner.create(device, bytes, kind)?;
        self.state().memory.insert(memory);
        Ok(memory)
    }

    fn release(&self, memory: MemoryId) -> Result<()> {
        self.fault("release")?;
        self.inner.release(memory)?;
        assert!(self.state().memory.remove(&memory));
        Ok(())
    }

    fn map(&self, address: u64, bytes: u64, memory: MemoryId) -> Result<()> {
        self.fault("map")?;
        self.inner.map(address, bytes, memory)?;
        assert_eq!(self.state().mappings.insert(address, bytes), None);
        Ok(())
    }

    fn unmap(&self, address: u64, bytes: u64) -> Result<()> {
        self.fault("unmap")?;
        let mut state = self.state();
        assert_eq!(state.mappings.remove(&address), Some(bytes));
        state.allowed.remove(&address);
        drop(state);
        self.inner.unmap(address, bytes)
    }

    fn allow(&self, address: u64, bytes: u64, devices: &[Device]) -> Result<()> {
        self.fault("allow")?;
        self.inner.allow(address, bytes, devices)?;
        self.state().allowed.insert(address, devices.to_vec());
        Ok(())
    }

    fn export(&self, memory: MemoryId, kind: HandleKind) -> Result<SharedHandle> {
        self.fault("export")?;
        self.inner.export(memory, kind)
    }

    fn import(&self, device: Device, handle: SharedHandle, bytes: u64) -> Result<MemoryId> {
        self.fault("import")?;
        let memory = self.inner.import(device, handle, bytes)?;
        self.state().memory.insert(memory);
        Ok(memory)
    }

    fn fill(&self, device: Device, address: u64, bytes: u64, value: u8) -> Result<()> {
        self.fault("fill")?;
        self.inner.fill(device, address, bytes, value)
    }

    fn read(&self, device: Device, address: u64, into: &mut [u8]) -> Result<()> {
        self.inner.read(device, address, into)
    }

    fn write(&self, device: Device, address: u64, from: &[u8]) -> Result<()> {
        self.inner.write(device, address, from)
    }

    fn fence(&self, device: Device, stream: Stream) -> Result<FenceId> {
        self.fault("fence")?;
        let fence = self.inner.fence(device, stream)?;
        self.state().fences.insert(fence);
        Ok(fence)
    }

    fn passed(&self, fence: FenceId) -> Result<bool> {
        self.fault("passed")?;
        self.inner.passed(fence)
    }

    fn forget(&self, fence: FenceId) {
        assert!(self.state().fences.remove(&fence));
        self.inner.forget(fence);
    }

    fn synchronize(&self, device: Device) -> Result<()> {
        self.fault("synchronize")?;
        self.inner.synchronize(device)
    }

    fn pin(&self, bytes: u64) -> Result<Pinned> {
        self.fault("pin")?;
        self.inner.pin(bytes)
    }

    fn own_stream(&self, device: Device) -> Result<Stream> {
        self.inner.own_stream(device)
    }

    fn fill_on(
        &self,
        device: Device,
        stream: Stream,
        address: u64,
        bytes: u64,
        value: u8,
    ) -> Result<()> {
        self.fault("fill_on")?;
        self.inner.fill_on(device, stream, address, bytes, value)
    }

    fn wait_on(&self, device: Device, stream: Stream, fence: FenceId) -> Result<()> {
        self.fault("wait_on")?;
        self.inner.wait_on(device, stream, fence)
    }
}
