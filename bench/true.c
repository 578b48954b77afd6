/* SPDX-License-Identifier: Apache-2.0 */
/* true.c: the cheapest program there is; built static, it is what the limit runs. */
int main(void)
{
    return 0;
}
