// kiban_copy(x0 target, x1 source, x2 length) and kiban_touch(x0 first, x1 last) for AArch64. Both return 1 in
// w0, or 0 after a fault (copy.rs). They use no stack and keep the link register, so that the fault exit can
// return at once. `dmb ishst` orders the last store after the others: programs poll the last byte of an RDMA
// Write.
    .pushsection .text.kiban_copy,"ax",%progbits
    .hidden kiban_copy, kiban_touch, kiban_copy_fault, kiban_copy_end
    .globl kiban_copy, kiban_touch, kiban_copy_fault, kiban_copy_end
    .balign 64
    .type kiban_copy, %function
kiban_copy:
    add x3, x1, x2
    add x4, x0, x2
    cmp x2, #16
    b.lo 20f
    cmp x2, #32
    b.hi 2f
    ldr q0, [x1]
    ldur q1, [x3, #-16]
    str q0, [x0]
    dmb ishst
    stur q1, [x4, #-16]
    b 9f
2:
    cmp x2, #64
    b.hi 3f
    ldp q0, q1, [x1]
    ldp q2, q3, [x3, #-32]
    stp q0, q1, [x0]
    dmb ishst
    stp q2, q3, [x4, #-32]
    b 9f
3:
    sub x5, x4, #64
4:
    ldp q0, q1, [x1]
    ldp q2, q3, [x1, #32]
    add x1, x1, #64
    stp q0, q1, [x0]
    stp q2, q3, [x0, #32]
    add x0, x0, #64
    cmp x0, x5
    b.lo 4b
    ldp q0, q1, [x3, #-64]
    ldp q2, q3, [x3, #-32]
    stp q0, q1, [x4, #-64]
    dmb ishst
    stp q2, q3, [x4, #-32]
9:
    mov w0, #1
    ret
20:
    tbz x2, #3, 21f
    ldr x5, [x1]
    ldur x6, [x3, #-8]
    str x5, [x0]
    dmb ishst
    stur x6, [x4, #-8]
    b 9b
21:
    tbz x2, #2, 22f
    ldr w5, [x1]
    ldur w6, [x3, #-4]
    str w5, [x0]
    dmb ishst
    stur w6, [x4, #-4]
    b 9b
22:
    tbz x2, #1, 23f
    ldrh w5, [x1]
    ldurh w6, [x3, #-2]
    strh w5, [x0]
    dmb ishst
    sturh w6, [x4, #-2]
    b 9b
23:
    cbz x2, 9b
    ldrb w5, [x1]
    strb w5, [x0]
    b 9b
    .size kiban_copy, . - kiban_copy
    .type kiban_touch, %function
kiban_touch:
12:
    ldrb w2, [x0]
    add x0, x0, #4096
    cmp x0, x1
    b.lo 12b
    ldrb w2, [x1]
    mov w0, #1
    ret
    .size kiban_touch, . - kiban_touch
kiban_copy_end:
    .type kiban_copy_fault, %function
kiban_copy_fault:
    mov w0, #0
    ret
    .size kiban_copy_fault, . - kiban_copy_fault
    .popsection
