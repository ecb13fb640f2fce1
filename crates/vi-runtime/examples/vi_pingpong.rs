//! Two VIs exchange a message and an answer. Then one reads the other's memory with RDMA Read.
//!
//! Both ends are in one process, each with its own NIC, connected through shared memory as two processes
//! would be. `cargo run --release -p kiban-vi-runtime --example vi_pingpong`

use kiban_base::{Region, SharedBytes};
use kiban_vi::{AddressSegment, DataSegment, MemoryAttributes, Reliability, ViAttributes, Work};
use kiban_vi_runtime::{Address, Device, Nic};
use std::error::Error;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(5);

/// Creates a NIC, 4 KiB of registered memory, and a VI that may access it.
fn end(device: &Device) -> Result<(Nic, Region, u32, u32), Box<dyn Error>> {
    let nic = Nic::open(device)?;
    let tag = nic.create_tag()?;
    let memory = Region::new(0, 4096);
    let handle =
        nic.register(memory.clone(), MemoryAttributes { tag, rdma_write: false, rdma_read: true })?;
    let reliability = Reliability::Reception;
    let attributes = ViAttributes {
        reliability,
        transfer_bytes_max: 4096,
        qos: 0,
        tag,
        rdma_write: false,
        rdma_read: true,
    };
    let vi = nic.create_vi(attributes, None, None)?;
    Ok((nic, memory, handle, vi))
}

fn main() -> Result<(), Box<dyn Error>> {
    let name = format!("example-{}", std::process::id());
    let (server, server_memory, server_handle, server_vi) = end(&Device::Shm(Some(name)))?;
    let (client, client_memory, client_handle, client_vi) = end(&Device::Shm(None))?;

    server.listen(b"greeting")?;
    std::thread::scope(|threads| {
        let serving = threads.spawn(|| -> Result<(), Box<dyn Error + Send + Sync>> {
            // Receives must be posted before messages arrive (reliable reception).
            server.post_receive(
                server_vi,
                1,
                &[DataSegment { address: 0, handle: server_handle, length: 64 }],
            )?;
            let request = server.connect_wait(b"greeting", PATIENCE)?;
            server.accept(&request, server_vi)?;
            let heard = server.receive_wait(server_vi, PATIENCE)?;
            let text = server_memory.read(0, heard.length as usize).ok_or("outside the memory region")?;
            println!("server: {}", String::from_utf8_lossy(&text));
            // Store the answer and, elsewhere, some bytes for the client to read.
            server_memory
                .write(1024, SharedBytes::from(&b"fetched, not sent"[..]))
                .ok_or("outside the memory region")?;
            server_memory
                .write(64, SharedBytes::from(&b"hello yourself"[..]))
                .ok_or("outside the memory region")?;
            let answer = [DataSegment { address: 64, handle: server_handle, length: 14 }];
            server.post_send(server_vi, Work::send(2, &answer).with_immediate(server_handle))?;
            server.send_wait(server_vi, PATIENCE)?;
            Ok(())
        });

        let to = Address { host: server.address(), discriminator: b"greeting".to_vec() };
        client.connect(client_vi, b"", &to, PATIENCE)?;
        client.post_receive(
            client_vi,
            1,
            &[DataSegment { address: 512, handle: client_handle, length: 64 }],
        )?;
        client_memory.write(0, SharedBytes::from(&b"hello"[..])).ok_or("outside the memory region")?;
        let greeting = [DataSegment { address: 0, handle: client_handle, length: 5 }];
        client.post_send(client_vi, Work::send(3, &greeting))?;
        println!("client: sent, {:?}", client.send_wait(client_vi, PATIENCE)?.status);
        let heard = client.receive_wait(client_vi, PATIENCE)?;
        let text = client_memory.read(512, heard.length as usize).ok_or("outside the memory region")?;
        println!("client: {}", String::from_utf8_lossy(&text));

        // Read by RDMA Read, without the server program's participation. The memory handle arrived as
        // immediate data.
        let there = AddressSegment {
            address: 1024,
            handle: heard.immediate.ok_or("the message has no immediate data")?,
        };
        let here = [DataSegment { address: 2048, handle: client_handle, length: 17 }];
        client.post_send(client_vi, Work::read(4, &here, there))?;
        client.send_wait(client_vi, PATIENCE)?;
        let text = client_memory.read(2048, 17).ok_or("outside the memory region")?;
        println!("client: read {:?}", String::from_utf8_lossy(&text));
        serving.join().expect("the server does not panic").map_err(|error| error.to_string().into())
    })
}
