# kiban_copy(rdi target, rsi source, rdx length, ecx whether there is AVX) and kiban_touch(rdi first, rsi last)
# for x86-64. Both return 1 in eax, or 0 after a fault (copy.rs). They use no stack, so that the fault exit can
# return at once.
    .pushsection .text.kiban_copy,"ax",@progbits
    .hidden kiban_copy, kiban_touch, kiban_copy_fault, kiban_copy_end
    .globl kiban_copy, kiban_touch, kiban_copy_fault, kiban_copy_end
    .balign 64
    .type kiban_copy, @function
kiban_copy:
    cmp rdx, 16
    jb 20f
    cmp rdx, 32
    ja 2f
    movups xmm0, [rsi]
    movups xmm1, [rsi + rdx - 16]
    movups [rdi], xmm0
    movups [rdi + rdx - 16], xmm1
    jmp 9f
2:                                          # 33 bytes or more
    cmp rdx, 64
    ja 3f
    movups xmm0, [rsi]
    movups xmm1, [rsi + 16]
    movups xmm2, [rsi + rdx - 32]
    movups xmm3, [rsi + rdx - 16]
    movups [rdi], xmm0
    movups [rdi + 16], xmm1
    movups [rdi + rdx - 32], xmm2
    movups [rdi + rdx - 16], xmm3
    jmp 9f
3:                                          # 65 bytes or more: the head, aligned runs, the tail
    mov rax, rdi
    neg rax
    test ecx, ecx
    jnz 6f
    movups xmm0, [rsi]
    movups [rdi], xmm0
    and eax, 15
    lea r8, [rdx - 64]
4:
    cmp rax, r8
    jae 5f
    movups xmm0, [rsi + rax]
    movups xmm1, [rsi + rax + 16]
    movups xmm2, [rsi + rax + 32]
    movups xmm3, [rsi + rax + 48]
    movaps [rdi + rax], xmm0
    movaps [rdi + rax + 16], xmm1
    movaps [rdi + rax + 32], xmm2
    movaps [rdi + rax + 48], xmm3
    add rax, 64
    jmp 4b
5:
    movups xmm0, [rsi + rdx - 64]
    movups xmm1, [rsi + rdx - 48]
    movups xmm2, [rsi + rdx - 32]
    movups xmm3, [rsi + rdx - 16]
    movups [rdi + rdx - 64], xmm0
    movups [rdi + rdx - 48], xmm1
    movups [rdi + rdx - 32], xmm2
    movups [rdi + rdx - 16], xmm3
    jmp 9f
6:
    vmovdqu ymm0, [rsi]
    cmp rdx, 128
    ja 7f
    vmovdqu ymm1, [rsi + 32]
    vmovdqu ymm2, [rsi + rdx - 64]
    vmovdqu ymm3, [rsi + rdx - 32]
    vmovdqu [rdi], ymm0
    vmovdqu [rdi + 32], ymm1
    vmovdqu [rdi + rdx - 64], ymm2
    vmovdqu [rdi + rdx - 32], ymm3
    vzeroupper
    jmp 9f
7:
    vmovdqu [rdi], ymm0
    and eax, 31
    lea r8, [rdx - 128]
    cmp rax, r8
    jae 8f
13:
    vmovdqu ymm0, [rsi + rax]
    vmovdqu ymm1, [rsi + rax + 32]
    vmovdqu ymm2, [rsi + rax + 64]
    vmovdqu ymm3, [rsi + rax + 96]
    vmovdqa [rdi + rax], ymm0
    vmovdqa [rdi + rax + 32], ymm1
    vmovdqa [rdi + rax + 64], ymm2
    vmovdqa [rdi + rax + 96], ymm3
    add rax, 128
    cmp rax, r8
    jb 13b
8:
    vmovdqu ymm0, [rsi + rdx - 128]
    vmovdqu ymm1, [rsi + rdx - 96]
    vmovdqu ymm2, [rsi + rdx - 64]
    vmovdqu ymm3, [rsi + rdx - 32]
    vmovdqu [rdi + rdx - 128], ymm0
    vmovdqu [rdi + rdx - 96], ymm1
    vmovdqu [rdi + rdx - 64], ymm2
    vmovdqu [rdi + rdx - 32], ymm3
    vzeroupper
9:
    mov eax, 1
    ret
20:                                         # fewer than 16 bytes
    cmp edx, 8
    jb 21f
    mov rax, [rsi]
    mov r8, [rsi + rdx - 8]
    mov [rdi], rax
    mov [rdi + rdx - 8], r8
    jmp 9b
21:
    cmp edx, 4
    jb 22f
    mov eax, [rsi]
    mov r8d, [rsi + rdx - 4]
    mov [rdi], eax
    mov [rdi + rdx - 4], r8d
    jmp 9b
22:
    cmp edx, 2
    jb 23f
    movzx eax, word ptr [rsi]
    movzx r8d, word ptr [rsi + rdx - 2]
    mov [rdi], ax
    mov [rdi + rdx - 2], r8w
    jmp 9b
23:
    test edx, edx
    jz 9b
    mov al, [rsi]
    mov [rdi], al
    jmp 9b
    .size kiban_copy, . - kiban_copy
    .type kiban_touch, @function
kiban_touch:
    xor ecx, ecx
12:
    mov al, [rdi]
    add rdi, 4096
    cmp rdi, rsi
    jb 12b
    mov al, [rsi]
    mov eax, 1
    ret
    .size kiban_touch, . - kiban_touch
kiban_copy_end:
    .type kiban_copy_fault, @function
kiban_copy_fault:
    test ecx, ecx
    jz 14f
    vzeroupper
14:
    xor eax, eax
    ret
    .size kiban_copy_fault, . - kiban_copy_fault
    .popsection
