(function_definition declarator: (_) @declarator) @function
(translation_unit (declaration declarator: (_) @declarator) @variable)
(preproc_if (declaration declarator: (_) @declarator) @variable)
(preproc_ifdef (declaration declarator: (_) @declarator) @variable)
(preproc_else (declaration declarator: (_) @declarator) @variable)
(preproc_elif (declaration declarator: (_) @declarator) @variable)
(declaration_list (declaration declarator: (_) @declarator) @variable)
(linkage_specification (declaration declarator: (_) @declarator) @variable)
(template_declaration (declaration declarator: (_) @declarator) @variable)
(field_declaration_list (declaration declarator: (_) @declarator) @variable)
(class_specifier name: (_) @declarator body: (field_declaration_list)) @class
(class_specifier name: (_) @declarator (base_class_clause [(type_identifier) @super (qualified_identifier name: (type_identifier) @super) (template_type name: (type_identifier) @super)]) body: (field_declaration_list)) @class
(struct_specifier name: (_) @declarator body: (field_declaration_list)) @struct
(struct_specifier name: (_) @declarator (base_class_clause [(type_identifier) @super (qualified_identifier name: (type_identifier) @super) (template_type name: (type_identifier) @super)]) body: (field_declaration_list)) @struct
(union_specifier name: (_) @declarator body: (field_declaration_list)) @struct
(enum_specifier name: (_) @declarator body: (enumerator_list)) @enum
(enumerator name: (identifier) @name) @constant
(namespace_definition name: [(namespace_identifier) (nested_namespace_specifier)] @name) @namespace
(alias_declaration name: (type_identifier) @name) @type
(concept_definition name: (identifier) @name) @type
(field_declaration declarator: (_) @declarator) @field
(type_definition declarator: (_) @declarator) @type
(preproc_def name: (identifier) @name) @macro
(preproc_function_def name: (identifier) @name) @macro
