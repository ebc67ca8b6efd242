(struct_item name: (type_identifier) @name) @struct
(union_item name: (type_identifier) @name) @struct
(enum_item name: (type_identifier) @name) @enum
(enum_variant name: (identifier) @name) @constant
(trait_item name: (type_identifier) @name) @trait
(trait_item name: (type_identifier) @name bounds: (trait_bounds (type_identifier) @super)) @trait
(impl_item type: (_) @declarator) @impl
(impl_item trait: [(type_identifier) @super (generic_type type: (type_identifier) @super) (scoped_type_identifier name: (type_identifier) @super) (generic_type type: (scoped_type_identifier name: (type_identifier) @super))] type: (_) @declarator) @impl
(mod_item name: (identifier) @name) @module
(function_item name: (identifier) @name) @function
(function_signature_item name: (identifier) @name) @function
(field_declaration name: (field_identifier) @name) @field
(const_item name: (identifier) @name) @constant
(static_item name: (identifier) @name) @constant
(type_item name: (type_identifier) @name) @type
(macro_definition name: (identifier) @name) @macro
(associated_type name: (type_identifier) @name) @type
(foreign_mod_item body: (declaration_list (function_signature_item name: (identifier) @name) @function))
